"""One life of a simulated node: the real server, built with the doors of a simulated process.

This module decides nothing. Clock, timers, workers, disk and network are simulated. Everything behind them is the code
of the command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.config import ServerConfig
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkacompat.server.doors import NodeDoors
from kafkacompat.server.raft_server import START_PROBLEMS, KafkaRaftServer
from kafkacompat.sim.errands import Errand
from kafkacompat.sim.faults.pools import SimulatedPools
from kafkacompat.sim.hosts import Host, ProcessEnded, Timer
from kafkacompat.sim.links import BROKER_PORT, Connection
from kafkacompat.sim.sockets import SimulatedNetwork, SimulatedSocketServer
from kafkacompat.sim.work import Work
from kafkacompat.tasks import Tasks

if TYPE_CHECKING:
    from kafkacompat.controller.liveness import Liveness
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.raft.contracts import LoadedBatch
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.share.share_partition_manager import SharePartitionManager
    from kafkacompat.sim.machine import SimulatedMachine


class NodeFailed(Exception):
    """A node halted itself, refused to start, or handled a request with a bug."""


class Life(Host):
    """A process from its start to its end. Call `start` once, then `die` for a crash or `shut_down`."""

    def __init__(self, machine: SimulatedMachine, config: ServerConfig, rate: float) -> None:
        super().__init__(machine.simulation, machine.id, rate)
        self.machine = machine
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
        self._starting: Errand[None] | None = None
        self.work = Work()
        self.pools = SimulatedPools(self, machine.chance, machine.draw_job_us, self.work)
        self._server = KafkaRaftServer(
            NodeDoors(
                config=config,
                clock=self,
                timers=self,
                tasks=Tasks(self),
                random=machine.chance,
                disk=machine.disk,
                workers=self.pools.ports,
                network=self.network,
                monotonic_s=self._monotonic_s,
                keep=_nothing,
                halt=self._halt,
                unique_text=machine.unique_text,
            )
        )

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
        if self.machine.may_halt(error) or self.simulation.faults.pools.may_halt(error):
            self.simulation.faults.halted(self.machine)
            raise ProcessEnded
        failure = NodeFailed(f"node {self.id} halts: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.simulation.found(failure)
        raise failure

    # The start.

    def start(self) -> None:
        self._starting = Errand(self._start(), lambda _: None)

    async def _start(self) -> None:
        try:
            await self._server.build(format_if_empty=False)
            self._watch()
            await self._server.start()
        except START_PROBLEMS as problem:
            if self.machine.refusals.behind(problem) is not None:
                self.simulation.faults.halted(self.machine)
                raise ProcessEnded from problem
            raise NodeFailed(f"node {self.id} does not start: {problem}") from problem
        except Exception as problem:
            # A bug ends the command with its traceback.
            if self.simulation.faults.pools.may_halt(problem):
                self.simulation.faults.halted(self.machine)
                raise ProcessEnded from problem
            raise

    def _watch(self) -> None:
        """Register the observers before anything acts."""
        simulation, server = self.simulation, self._server
        assert server.shared is not None
        self.driver = server.shared.driver
        self.metadata = machine = server.shared.machine
        if server.broker is not None:
            self.partitions, self.fetches = server.broker.partitions, server.broker.fetches
            self.shares = server.broker.coordinators.shares.partitions
            simulation.share_groups.watch(self, self.shares)
        machine.subscribe(lambda old, new: simulation.image_oracles.published(self, old, new))
        machine.subscribe(lambda old, new: simulation.rights_oracle.published(self, old, new))
        tell_first(machine, "apply", lambda _: simulation.image_oracles.applied(self))
        tell_first(machine, "load_snapshot", self._loads_snapshot)
        tell_first(machine, "became_active", self._becomes_active)
        if server.controller is not None:
            self.liveness = server.controller.liveness
            tell_first(self.liveness, "_take_for_gone", self._takes_for_gone)

    def _loads_snapshot(self, batch: LoadedBatch) -> None:
        self.simulation.image_oracles.applied(self)  # a snapshot replaces many batches
        self.simulation.counters.snapshots_loaded += batch.last_offset > 0

    def _becomes_active(self, epoch: int) -> None:
        self.simulation.counters.controllers += 1
        self.active_since_us = self.simulation.scheduler.now_us

    def _takes_for_gone(self, broker_id: int) -> None:
        self.simulation.image_oracles.taken_for_gone(self.metadata.core.image.brokers[broker_id])

    # Accessors for oracles and faults.

    @property
    def logs(self) -> LogManager:
        assert self._server.broker is not None
        return self._server.broker.logs

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
    def heartbeats(self) -> BrokerLifecycleManager | None:
        broker = self._server.broker
        return None if broker is None else broker.heartbeats

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
            TRANSACTION_TOPIC: coordinators.transactions.coordinator._shards,
            SHARE_STATE_TOPIC: coordinators.shares.state.coordinator._shards,
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
            for shard in broker.coordinators.shares.state.coordinator._shards
            if shard.state is ShardState.ACTIVE
            for key, state in shard.machine.states.items()  # type: ignore[attr-defined]
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
        self.network.channels.source_died(silently=silently)
        for connection in list(self.connections.values()):
            connection.server_died(silently=silently)
        self.connections.clear()

    def shut_down(self) -> None:
        """Shut down, at any point of the start: move leadership away, close the logs, write the mark of a clean shutdown."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if self._starting is not None:
            self._starting.call_off()
        Errand(self._server.stop(), self._stopped)

    def _stopped(self, is_clean: bool) -> None:
        self.simulation.counters.clean_stops += is_clean
        self.simulation.stopped(self)


def _nothing() -> None:
    """Do nothing: one garbage collector serves all processes of a simulation."""


def tell_first(owner: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told` before every call of the object's method."""
    method = getattr(owner, name)

    def call(argument: Any) -> Any:
        told(argument)
        return method(argument)

    setattr(owner, name, call)
