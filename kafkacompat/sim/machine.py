"""A simulated machine, the node process that runs on it, and the process's sockets.

The process (`Life`) is the real server, built with the services of a simulated process. Clock, timers, workers, disk and
network are simulated. Everything behind them is the code of the command. This module decides nothing.

A socket server passes each message to the handlers of its dispatcher, at the highest version. Messages of groups, and of
clients that authenticate themselves, pass through the dispatcher as frames: a frame with a header in, the bytes of a reply
out.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Protocol, cast

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.api.sasl_dispatch import NobodyAuthenticates, SaslDispatcher
from kafkacompat.config import ServerConfig
from kafkacompat.controller.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    STREAMS_VERSION,
    default_levels,
)
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.coordinator.shards import Rounds
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.ports import HalfDone
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Dispatcher, Pending, Reply
from kafkacompat.ports.files import FileSlice
from kafkacompat.ports.network import ListenerReading, MemoryReading
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.server.data_directories import format_node
from kafkacompat.server.raft_server import START_PROBLEMS, KafkaRaftServer
from kafkacompat.server.services import NodeServices
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import (
    METADATA_DIRECTORY,
    ClusterOptions,
)
from kafkacompat.sim.disk import SimulatedDisk
from kafkacompat.sim.faults.refusals import Refusals
from kafkacompat.sim.links import (
    BROKER_PORT,
    CLUSTER_ID,
    CONTROLLER_PORT,
    EXTERNAL_PORT,
    SECURED_PORT,
    Connection,
    Links,
    SimulatedChannels,
    host_name,
)
from kafkacompat.sim.node_settings import node_properties
from kafkacompat.sim.oracles import ClusterOracles
from kafkacompat.sim.processes import (
    TIERED_CALLS_MAX,
    WALL_CLOCK_ZERO_MS,
    CoroutineRun,
    Process,
    ProcessEnded,
    StepWork,
    Timer,
)
from kafkacompat.sim.workers import SimulatedPools
from kafkacompat.tasks import Tasks
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from kafkacompat.api.dispatch import ApiDispatcher
    from kafkacompat.api.registry import ApiTable
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.controller.liveness import Liveness
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Timers
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.raft.contracts import LoadedBatch
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.security.sasl_client import ClientSecurity
    from kafkacompat.server.remote_storage import RemoteStorage
    from kafkacompat.share.share_partition_manager import SharePartitionManager
    from kafkacompat.sim.links import Connection
    from kafkacompat.sim.remote_store import SimulatedRemoteStore
    from kafkacompat.sim.tiers import Tiers
    from kafkacompat.tasks import Started


CONSEQUENCES_US = 1_000_000


class MachineFaults(Protocol):
    """The faults of a cluster, as its machines meet them."""

    def before_operation(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        """Raise ProcessEnded if the machine's process dies at this operation of its disk."""

    def after_refusals(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        """Raise OSError if the operation fails although the disk does not refuse it."""

    def may_halt(self, error: BaseException) -> bool:
        """Whether the error was planted, and requires the process to halt."""

    def halted(self, machine: SimulatedMachine) -> None: ...

    def restart_later(self, machine: SimulatedMachine) -> None: ...


class Machines:
    """The machines of a cluster. Links, oracles and faults have it before the first machine is there."""

    def __init__(self) -> None:
        self.by_id: dict[int, SimulatedMachine] = {}
        self.ordered: list[SimulatedMachine] = []

    def add(self, machine: SimulatedMachine) -> None:
        self.by_id[machine.id] = machine
        self.ordered.append(machine)


class SimulatedMachine:
    def __init__(
        self,
        links: Links,
        oracles: ClusterOracles,
        faults: MachineFaults,
        machine_id: int,
        rate: float,
        store: SimulatedRemoteStore | None = None,
    ) -> None:
        """`store`: the cluster's remote store."""
        env = links.env
        options = env.options
        self.env = env
        self.links = links
        self.oracles = oracles
        self.faults = faults
        self.store = store
        self.tiers: Tiers | None = None
        self.id = machine_id
        self.chance = Chance(env.seed, f"machine {machine_id}")
        self._names = Chance(env.seed, f"names {machine_id}")
        self.disk = SimulatedDisk()
        self.life: Life | None = None
        """None while no process runs."""
        self.has_power = True
        self.disk_factor, self.link_us = 1, 0
        """How slow its disks are, and the maximum additional delay of its messages."""
        self.wall_offset_ms = 0
        """How far its wall clock is ahead."""
        self.lives = 0
        self.is_broker = machine_id in options.brokers
        self.is_controller = machine_id in options.controllers
        self._rate = rate
        self._config = ServerConfig.from_properties(node_properties(options, machine_id))
        for path in (*self._config.log_dirs, METADATA_DIRECTORY):
            self.disk.make_directory(path)
        self.disk.sync_directory("/")
        format_node(
            self._config,
            self.disk,
            self.chance,
            WALL_CLOCK_ZERO_MS,
            cluster_id=CLUSTER_ID,
            standalone=False,
            initial_voters=initial_voters(env.seed, options) if self.is_controller else (),
            feature_levels=feature_levels(options),
        )
        self.refusals = Refusals(lambda: env.scheduler.now_us)
        self._is_watched = False
        self.disk.meet = self._meet
        self.disk.moved = self._moved
        self.disk.sync_failed = self.refusals.sync_failed

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observers read files inside this block. The disk refuses nothing then."""
        before, self._is_watched = self._is_watched, True
        try:
            yield
        finally:
            self._is_watched = before

    def _meet(self, operation: str, path: str) -> None:
        """The running process calls the disk."""
        if self._is_watched:
            return
        if self.life is None:
            # Cleanup code of a process that has ended itself.
            raise ProcessEnded
        self.life.work.disk_called()
        self.faults.before_operation(self, operation, path)
        self.refusals.meet(operation, path)
        self.faults.after_refusals(self, operation, path)

    def _moved(self, count: int) -> None:
        if self.life is not None and not self._is_watched:
            self.life.work.moved(count)

    def unique_text(self) -> str:
        """A start finds directories in the order of their names, so these follow from the seed as well."""
        return self._names.uuid().hex()

    def draw_job_us(self) -> int:
        """Return the duration of a worker's job."""
        return self.disk_factor * self.env.draw_sync_us()

    def start(self) -> None:
        self._tell("starts")
        self.has_power = True
        self.lives += 1
        self.refusals.process_starts()
        self.life = life = Life(self, self._config, self._rate)
        life.enter("start", life.start)

    def kill(self) -> None:
        """kill -9: written data stay."""
        self._tell("is killed")
        if self.life is not None:
            self.life.die(silently=False)

    def lose_power(self) -> None:
        """Data that were not synced may be lost, and peers get no signal."""
        self._tell("loses power")
        self.has_power = False
        if self.life is not None:
            self.life.die(silently=True)
        bytes_lost, names_lost = self.disk.lose_power(self.chance)
        self.env.counters.lost_bytes += bytes_lost
        self.env.counters.lost_names += names_lost

    @property
    def is_well(self) -> bool:
        """Whether its disk refuses nothing, and earlier refusals have had their effects."""
        before_us = self.env.scheduler.now_us - CONSEQUENCES_US
        told, life = self.refusals.told, self.life
        is_quiet = not self.refusals.conditions and (not told or told[-1].at_us < before_us)
        if life is None or not is_quiet:
            return is_quiet
        is_known = not told or not life.pools.are_at_work_since(told[-1].at_us)
        return is_known and not life.has_lost_directories

    @property
    def directories(self) -> tuple[str, ...]:
        """Its directories. Each is a separate file system."""
        return (*self.log_directories, METADATA_DIRECTORY)

    @property
    def log_directories(self) -> tuple[str, ...]:
        return tuple(self._config.log_dirs) if self.is_broker else ()

    def may_halt(self, error: BaseException) -> bool:
        """Whether the disk's errors require the process to halt: the metadata directory failed, or all others did.

        If the disk of the metadata log is only full, the process waits instead, unless that stopped the replacement of
        the log by a snapshot half way.
        """
        told = self.refusals.behind(error)
        if told is None:
            return False
        if told.directory == METADATA_DIRECTORY:
            return told.condition.code != errno.ENOSPC or isinstance(error, HalfDone)
        return all(map(self.refusals.has_failed, self.log_directories))

    def _tell(self, what: str) -> None:
        if self.env.tell is not None:
            self.env.tell(f"*** node {self.id} {what}")


def feature_levels(options: ClusterOptions) -> list[tuple[str, int]]:
    lacking = set() if options.has_elr else {ELIGIBLE_LEADER_REPLICAS_VERSION}
    levels = default_levels()
    if options.streams_from_level:
        levels, lacking = default_levels(options.streams_from_level), lacking | {STREAMS_VERSION}
    return [(name, level) for name, level in levels if name not in lacking]


def initial_voters(seed: int, options: ClusterOptions) -> tuple[VoterNode, ...]:
    """Return the voters of a quorum whose voters are not in the settings."""
    chance = Chance(seed, "voters")
    return tuple(
        VoterNode(each, chance.uuid(), (("CONTROLLER", host_name(each), CONTROLLER_PORT),))
        for each in options.controllers
        if options.changes_voters
    )


class CountedTasks(Tasks):
    """Counts the rounds of coordinators that have visited a partition, by their names. Those that are planned begin at 0.
    Call `process_ended` where its process ends, in the middle of a task too."""

    __slots__ = ("_rounds",)

    def __init__(self, timers: Timers, rounds: dict[str, int]) -> None:
        super().__init__(timers)
        self._rounds = rounds

    def start(self, what: str, coroutine: Coroutine[Any, None, object]) -> Started:
        code = coroutine.cr_code  # type: ignore[attr-defined]  # which every coroutine has
        if code is Rounds._repeat.__code__:
            self._rounds.setdefault(what, 0)
        elif code is Rounds._go_round.__code__:
            coroutine = self._counted(what, coroutine)
        return super().start(what, coroutine)

    async def _counted(self, what: str, coming: Coroutine[Any, None, object]) -> None:
        self._rounds[what] += bool(await coming)

    def process_ended(self) -> None:
        """Python warns of coroutines that never begin."""
        for task in self:
            if getcoroutinestate(task._coroutine) == CORO_CREATED:
                task._coroutine.close()


class NodeFailed(Exception):
    """A node halted itself, refused to start, or handled a request with a bug."""


class Life(Process):
    """A process from its start to its end. Call `start` once, then `die` for a crash or `shut_down`."""

    def __init__(self, machine: SimulatedMachine, config: ServerConfig, rate: float) -> None:
        super().__init__(machine.env, machine.id, rate)
        self.machine = machine
        self.links, self.oracles, self._faults = machine.links, machine.oracles, machine.faults
        self.connections: dict[int, Connection] = {}
        """Connections to this life, by id."""
        self.listening: dict[int, SimulatedSocketServer] = {}
        """Socket servers by port."""
        self.network = SimulatedNetwork(self)
        self.is_stopping = False
        self.active_since_us = 0
        """The time when it last became the active controller."""
        self.metadata: MetadataMachine
        self.driver: QuorumDriver
        self.liveness: Liveness | None = None
        self.partitions: ReplicaManager | None = None
        self.fetches: FetchEngine | None = None
        self.shares: SharePartitionManager | None = None
        self._looks_at_time = 0
        self._starting: CoroutineRun[None] | None = None
        store = machine.store
        self.work = StepWork() if store is None else StepWork(TIERED_CALLS_MAX)
        self.tasks = CountedTasks(self, machine.env.counters.rounds)
        self.pools = SimulatedPools(
            self, machine.chance, machine.draw_job_us, self.work, None if store is None else store.draw_us
        )
        self._server = KafkaRaftServer(
            NodeServices(
                config=config,
                clock=self,
                timers=self,
                work_clock=self,
                work_timers=self,
                tasks=self.tasks,
                random=machine.chance,
                disk=machine.disk,
                workers=self.pools.ports,
                network=self.network,
                monotonic_s=self._monotonic_s,
                keep=_nothing,
                halt=self._halt,
                remote_store=None if store is None else store.storage_of(self, machine.disk),
                channels_with=self.network.other_cluster if machine.env.options.mirror_ms else None,
                unique_text=machine.unique_text,
            )
        )

    def before_event(self, what: str) -> None:
        self.work.begin(what)
        super().before_event(what)

    def after_event(self) -> None:
        if not self.is_stopping and (self.is_serving or not self.machine.is_broker):
            # During a start and a stop, only their own callers wait.
            self.work.check(self.id)
        if self.machine.disk.trusted:
            raise Breach(
                "no trust after a failed sync", f"node {self.id} syncs again {self.machine.disk.trusted}"
            )
        self.oracles.after_event(self)

    @property
    def has_power(self) -> bool:
        return self.machine.has_power

    def message_sent(self) -> None:
        self.work.messages += 1

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        self.work.timers += 1
        return super().call_after(delay_ms, callback)

    def look_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Like `call_after`, for observers of the node. It does not count as the node's work."""
        return super().call_after(delay_ms, callback)

    def now_ms(self) -> int:
        return super().now_ms() + self.machine.wall_offset_ms

    def _monotonic_s(self) -> float:
        """Time only advances between events. Each call advances this clock, so the number of calls bounds a step."""
        self._looks_at_time += 1
        return self._looks_at_time / 1000

    def _halt(self, error: BaseException) -> None:
        """A halt is correct after certain disk errors, and a bug otherwise."""
        if not self.alive:
            raise ProcessEnded
        if self.machine.may_halt(error) or self._faults.may_halt(error):
            self._faults.halted(self.machine)
            raise ProcessEnded
        failure = NodeFailed(f"node {self.id} halts: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.env.found(failure)
        raise failure

    # The start.

    def start(self) -> None:
        self._starting = CoroutineRun(self._start(), lambda _: None)

    async def _start(self) -> None:
        try:
            await self._server.build(format_if_empty=False)
            self._watch()
            await self._server.start()
        except START_PROBLEMS as problem:
            if self.machine.refusals.behind(problem) is not None:
                self._faults.halted(self.machine)
                raise ProcessEnded from problem
            raise NodeFailed(f"node {self.id} does not start: {problem}") from problem
        except Exception as problem:
            # A bug ends the command with its traceback.
            if self._faults.may_halt(problem):
                self._faults.halted(self.machine)
                raise ProcessEnded from problem
            raise

    def _watch(self) -> None:
        """Register the observers before anything acts."""
        oracles, server = self.oracles, self._server
        assert server.shared is not None
        self.driver = server.shared.driver
        self.metadata = machine = server.shared.machine
        if server.broker is not None:
            self.partitions, self.fetches = server.broker.partitions, server.broker.fetches
            self.shares = server.broker.coordinators.shares
            if oracles.shares is not None:
                oracles.shares.watch(self, self.shares)
        machine.subscribe(lambda old, new: oracles.images.published(self, old, new))
        machine.subscribe(lambda old, new: oracles.rights.published(self, old, new))
        if self.machine.tiers is not None:
            machine.subscribe(self.machine.tiers.published)
        tell_first(machine, "apply", lambda _: oracles.images.applied(self))
        tell_first(machine, "load_snapshot", self._loads_snapshot)
        tell_first(machine, "became_active", self._becomes_active)
        if server.controller is not None:
            self.liveness = server.controller.liveness
            tell_first(self.liveness, "_take_for_gone", self._takes_for_gone)

    def _loads_snapshot(self, batch: LoadedBatch) -> None:
        self.oracles.images.applied(self)  # a snapshot replaces many batches
        self.env.counters.snapshots_loaded += batch.last_offset > 0

    def _becomes_active(self, epoch: int) -> None:
        self.env.counters.controllers += 1
        self.active_since_us = self.env.scheduler.now_us

    def _takes_for_gone(self, broker_id: int) -> None:
        self.oracles.images.taken_for_gone(self.metadata.core.image.brokers[broker_id])

    # Accessors for oracles and faults.

    @property
    def logs(self) -> LogManager:
        assert self._server.broker is not None
        return self._server.broker.logs

    @property
    def remote(self) -> RemoteStorage | None:
        broker = self._server.broker
        return None if broker is None else broker.remote_storage

    @property
    def is_serving(self) -> bool:
        """Whether it serves clients and brokers."""
        server = self.listening.get(BROKER_PORT)
        return server is not None and server.serves

    @property
    def is_held_by_a_full_disk(self) -> bool:
        """Whether its quorum waits until the metadata directory takes writes."""
        return self.driver.is_held

    @property
    def lifecycle(self) -> BrokerLifecycleManager | None:
        broker = self._server.broker
        return None if broker is None else broker.lifecycle

    @property
    def has_lost_directories(self) -> bool:
        """Whether it runs without some directories, or without a log that could not be opened, until its next start."""
        broker = self._server.broker
        return broker is not None and any(
            not each.online or each.has_unopened for each in broker.logs.directories
        )

    def has_online(self, directory: str) -> bool:
        """Whether this log directory is online."""
        broker = self._server.broker
        return broker is not None and any(
            each.path == directory and each.online for each in broker.logs.directories
        )

    def serves_log_in(self, directory: str) -> bool:
        """Whether it serves a partition's log in that directory."""
        broker = self._server.broker
        return broker is not None and any(log.directory == directory for log in broker.logs.logs.values())

    def loads_log_in(self, directory: str) -> bool:
        """Whether a coordinator loads the partition whose log is in that directory."""
        broker = self._server.broker
        if broker is None:
            return False
        name, _, index = directory.rpartition("/")[2].rpartition("-")
        coordinators = broker.coordinators
        shards = {
            OFFSETS_TOPIC: coordinators.groups._shards,
            TRANSACTION_TOPIC: coordinators.transactions._shards,
            SHARE_STATE_TOPIC: coordinators.share_coordinator._shards,
        }.get(name)
        shard = None if shards is None else shards.get(int(index))
        return shard is not None and shard.state is ShardState.LOADING

    def share_states(self) -> dict[Any, Any]:
        """The states of share-partitions that its share coordinator has loaded."""
        broker = self._server.broker
        if broker is None:
            return {}
        return {
            key: state
            for shard in broker.coordinators.share_coordinator._shards
            if shard.state is ShardState.ACTIVE
            for key, state in shard.machine.states.items()  # type: ignore[attr-defined]
        }

    def group_machines(self) -> dict[int, Any]:
        """The group coordinator's machines that are loaded, by their partition."""
        broker = self._server.broker
        if broker is None:
            return {}
        return {
            shard.partition: shard.machine
            for shard in broker.coordinators.groups._shards
            if shard.state is ShardState.ACTIVE
        }

    def misplaced(self, topic_partition: TopicPartition, directory_id: Uuid) -> str | None:
        """Return what is wrong at the end of the run, if the metadata place the log in that directory. None if all is right."""
        broker = self._server.broker
        assert broker is not None
        for directory in broker.logs.log_dirs():
            if topic_partition in directory.futures:
                return f"still moves to {directory.path}"
            if topic_partition in directory.logs and directory.directory_id != directory_id:
                return f"lies in {directory.path}, which is not {directory_id.hex()}"
        return None

    # The end.

    def die(self, *, silently: bool) -> None:
        """At once. Peers see connections close, unless the power went."""
        self.alive = False
        self.machine.life = None
        self.machine.disk.process_ended()
        self.network.source_died(silently=silently)
        for connection in list(self.connections.values()):
            connection.server_died(silently=silently)
        self.connections.clear()
        self.tasks.process_ended()
        if self.machine.store is not None:
            self.forget_tasks()

    def forget_tasks(self) -> None:
        """Nothing resumes the tasks any more: neither events nor the collection of other tasks as garbage."""
        for task in self.tasks:
            if task.waits_for is not None:
                task.waits_for.forget(task._value_is_there)

    def shut_down(self) -> None:
        """Shut down, at any point of the start: move leadership away, close the logs, write the mark of a clean shutdown."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if self._starting is not None:
            self._starting.call_off()
        CoroutineRun(self._server.stop(), self._stopped)

    def _stopped(self, is_clean: bool) -> None:
        self.env.counters.clean_stops += is_clean
        self.die(silently=False)
        self._faults.restart_later(self.machine)


def _nothing() -> None:
    """Do nothing: one garbage collector serves all processes of a simulation."""


def tell_first(owner: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told` before every call of the object's method."""
    method = getattr(owner, name)

    def call(argument: Any) -> Any:
        told(argument)
        return method(argument)

    setattr(owner, name, call)


STAND_INS: dict[type[Exception], ErrorCode] = {
    NotController: ErrorCode.NOT_CONTROLLER,
    ControllerTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    ConnectionLost: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same error codes as in api/dispatch."""
ADDRESS = "127.0.0.1"


class SimulatedNetwork:
    def __init__(self, life: Life) -> None:
        self._life = life
        self.channels = self.controller_channels = SimulatedChannels(life, life.links)
        self._to_others: list[SimulatedChannels] = []
        """To other clusters."""

    def other_cluster(self, security: ClientSecurity) -> SimulatedChannels:
        channels = SimulatedChannels(self._life, self._life.links)
        self._to_others.append(channels)
        return channels

    def source_died(self, *, silently: bool) -> None:
        for channels in (self.channels, *self._to_others):
            channels.source_died(silently=silently)

    def socket_server(self) -> SimulatedSocketServer:
        return SimulatedSocketServer(self._life)

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        """No simulated listener uses all interfaces."""
        return Deferred.of("")

    def resolve(self, host: str) -> Deferred[str | None]:
        """Hosts have addresses only."""
        return Deferred.of(None)


class SimulatedSocketServer:
    def __init__(self, life: Life) -> None:
        self._life = life
        self.dispatcher: Dispatcher
        self._listeners: dict[int, EndPoint] = {}
        """By port."""
        self.serves = False
        """True while requests are accepted."""
        self._waiting: list[Callable[[], None]] = []
        """Requests that arrived before the server accepted them."""
        self._connections: dict[int, Connection] = {}
        self._drained: Deferred[None] | None = None

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        bound = tuple(endpoints)
        for each in bound:
            self._listeners[each.port] = each
            # A listener for clients of another network, which is not simulated. Connections to it are refused.
            if each.port != EXTERNAL_PORT:
                self._life.listening[each.port] = self
        return Deferred.of(bound)

    def serve(self, dispatcher: Dispatcher) -> Deferred[None]:
        self.dispatcher = dispatcher
        self.serves = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
        return Deferred.of(None)

    def redirect(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def hold(self, listeners: Collection[str]) -> None:
        """Do nothing: only listeners with port 0 are bound before they are served."""

    def take_settings(self, config: ServerConfig) -> None:
        """Do nothing: connections are not limited here."""

    def check_settings(self, config: ServerConfig) -> None:
        """Do nothing: there are no stores."""

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        """Do nothing: connections are not limited here."""

    def drain(self, deadline_ms: int) -> Deferred[None]:
        self.close_listeners()
        self._drained = Deferred()
        for connection in list(self._connections.values()):
            connection.drain()
        self._life.call_after(deadline_ms, self._close_all)
        self._maybe_drained()
        return self._drained

    def listener_readings(self) -> dict[str, ListenerReading]:
        """Nobody scrapes a simulated node."""
        return {}

    def certificate_ends_s(self) -> dict[str, float]:
        return {}

    def memory_reading(self) -> MemoryReading | None:
        return None

    def close_listeners(self) -> None:
        for port in self._listeners:
            self._life.listening.pop(port, None)

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.close_by_server()

    def _maybe_drained(self) -> None:
        if self._drained is not None and not self._drained.done and not self._connections:
            self._drained.resolve(None)

    # Events of connections.

    def opened(self, connection: Connection) -> ConnectionInfo:
        self._connections[connection.id] = connection
        listener = self._listeners[connection.port]
        return ConnectionInfo(connection.id, listener.listener_name, ADDRESS, 0, listener.is_sasl)

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.id, None) is not None:
            if self.serves:
                self.dispatcher.connection_closed(connection.info)
            self._maybe_drained()

    def asked(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        if self.serves:
            self._begin(connection, message, answered)
        else:
            self._waiting.append(lambda: self._begin(connection, message, answered))

    def _begin(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        timer = self._life.oracles.answers.watch(self._life, connection, message)
        if timer is None:
            self._carry_out(connection, message, answered)
            return

        def in_time(response: Any) -> None:
            timer.cancel()
            answered(response)

        self._carry_out(connection, message, in_time)

    def _carry_out(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        if is_framed(connection):
            carry_out_framed(self._life, self.dispatcher, connection, message, answered)
            return
        life = self._life
        dispatcher = served_by(self.dispatcher)
        context = context_of(message, connection, dispatcher.table)
        oracles = life.oracles
        is_forwarded = isinstance(message, EnvelopeRequest)
        asked = oracles.rights.forwarded(life, message) if is_forwarded else None

        def done(answer: Deferred[Any]) -> None:
            try:
                response = answer.result()
            except CloseConnection:
                connection.close_by_server()
                return
            except OSError:
                handler = dispatcher.table.load(message.API_KEY)
                response = handler.error_response(message, ErrorCode.KAFKA_STORAGE_ERROR, context.api_version)
            except (NotController, ControllerTimedOut, ConnectionLost) as error:
                if isinstance(error, ConnectionLost) and not life.is_stopping:
                    raise
                handler = dispatcher.table.load(message.API_KEY)
                response = handler.error_response(message, STAND_INS[type(error)], context.api_version)
            if isinstance(response, FetchResponse):
                try:
                    read_records(response)
                except OSError:
                    # As if the kernel could not read the file to send.
                    connection.close_by_server()
                    return
            elif isinstance(response, MetadataResponse):
                response = copied(response, message)
            oracles.clients.answered(life, message, response)
            if asked is not None:
                oracles.rights.unwrapped(asked, response)
            answered(response)

        dispatcher.call(context, message).on_done(done)


def served_by(dispatcher: Dispatcher) -> ApiDispatcher:
    """Return the dispatcher that carries requests out, without the one that authenticates their clients."""
    return cast("ApiDispatcher", dispatcher.served if isinstance(dispatcher, SaslDispatcher) else dispatcher)


def context_of(message: Any, connection: Connection, table: ApiTable) -> RequestContext:
    """Return a context with the highest served version, unless the client has named a lower one. For some APIs Kafka defines a
    version that it does not serve yet."""
    highest = connection.channel.max_versions.get(type(message), message.MAX_VERSION)
    return RequestContext(
        message.API_KEY,
        min(highest, table.by_key[message.API_KEY].max_version),
        0,
        None,
        connection.info.connection_id,
        connection.info.listener_name,
        connection.info.client_host,
    )


def read_records(response: FetchResponse) -> None:
    """Read the records, as sending them through the socket would."""
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if records is not None:
                partition.records = records.read() if isinstance(records, FileSlice) else bytes(records)


def copied(response: Any, request: Any) -> Any:
    """Encode and decode the response, because parts of it are already encoded."""
    version = request.MAX_VERSION
    return decode(response_class(request.API_KEY), version, bytes(encode(response, version)))


GROUP_PURPOSE, LATE_PURPOSE, SHARE_PURPOSE = "group", "group late", "share"
FRAMED = frozenset({GROUP_PURPOSE, LATE_PURPOSE, SHARE_PURPOSE})
"""Connections with these purposes carry frames, one request at a time. So do all to SECURED_PORT."""
SIZE_BYTES = 4
CLOSING = (CloseConnection, WireError)


def is_framed(connection: Connection) -> bool:
    return connection.channel.purpose in FRAMED or connection.port == SECURED_PORT


def carry_out_framed(
    life: Life, dispatcher: Dispatcher, connection: Connection, message: Any, answered: Callable[[Any], None]
) -> None:
    """Send a message at its highest version. The connection is closed if the dispatcher requires it."""
    key = message.API_KEY
    version = min(message.MAX_VERSION, BROKER_APIS.by_key[key].max_version)
    frame = request_header_bytes(key, version, 0, "simulated") + encode(message, version)
    oracle, shares = life.oracles.rights, life.oracles.shares
    asked = oracle.arrives(life, connection, message) if connection.port == SECURED_PORT else None

    def done(reply: Deferred[Any]) -> None:
        try:
            parts = reply.result()
        except (*CLOSING, OSError) as problem:
            close(is_judged=not isinstance(problem, NobodyAuthenticates))
            return
        if parts is None and connection.is_ended:
            close(is_judged=False)  # a long request ends without an answer when nobody waits for it
            return
        try:
            data = _bytes_of(parts)[SIZE_BYTES:]
        except OSError:
            close(is_judged=False)  # records of a reply cannot be read
            return
        _, start = parse_response_header(data, key, version)
        response = decode(response_class(key), version, data[start:])
        if asked is not None:
            oracle.answered(asked, response)
        if shares is not None:
            shares.answered(life, message, response)
        answered(response)

    def close(is_judged: bool) -> None:
        if asked is not None:
            oracle.refused(asked, is_judged)
        connection.close_by_server()

    try:
        reply = dispatcher.dispatch(connection.info, memoryview(frame))
    except CLOSING as problem:
        close(is_judged=not isinstance(problem, NobodyAuthenticates))
        return
    if isinstance(reply, Pending):
        reply.reply.on_done(done)
    else:
        done(Deferred.of(reply))


def _bytes_of(reply: Reply) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in reply)
