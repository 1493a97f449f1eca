"""What a test holds: a Kafka of one node or of several, in this process (kafka_process.py has the one in a process of its own).

with Kafka() as kafka:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kafkacompat.addresses import host_and_port
from kafkacompat.controller.features import default_levels
from kafkacompat.exchanges.causes import Causes
from kafkacompat.exchanges.exchange import Watcher
from kafkacompat.exchanges.levels import GROUP, TRANSACTION
from kafkacompat.exchanges.recorded import Recorded
from kafkacompat.ids import partition_of_key, uuid_to_text
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.records.record import Record as LogRecord
from kafkacompat.server.data_directories import format_node
from kafkacompat.server.node_state import NodeState
from kafkacompat.testing import cluster
from kafkacompat.testing.clock import TestClock
from kafkacompat.testing.early_answers import EarlyAnswers
from kafkacompat.testing.exchange import Hooks, intercepted
from kafkacompat.testing.exchanges import Exchanges
from kafkacompat.testing.expectations import Value, as_bytes, as_headers, expect, told_group
from kafkacompat.testing.faulty_disk import FaultyDisk
from kafkacompat.testing.links import Links, NodeLinks
from kafkacompat.testing.log import BrokerLog, end_log, keep_log
from kafkacompat.testing.memory_disk import MemoryDisk
from kafkacompat.testing.node import NodeEnded, NodeThread
from kafkacompat.testing.operations import NodeOperations, Refused
from kafkacompat.testing.ports import ReservedPorts
from kafkacompat.testing.secured import Security, security_of
from kafkacompat.testing.settings import client_listeners, has_scram, nodes_settings
from kafkacompat.testing.standstill import Standstill
from kafkacompat.testing.values import Committed, Ends, Group, Record, Transaction
from kafkacompat.testing.waiting import in_thread, until
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from types import TracebackType

    from kafkacompat.config import ServerConfig
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.testing.faults import Fault, Faults
    from kafkacompat.testing.flavors import Flavor
    from kafkacompat.testing.folder_disk import FolderDisk
    from kafkacompat.testing.versions import Release

    TestDisk = MemoryDisk | FolderDisk

T = TypeVar("T")
TIMEOUT_S = 30.0
BATCH_RECORDS = 500
NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Refusals that pass while a cluster settles."""
_numbers = itertools.count(1)


class Snapshot:
    """The state of a Kafka at one moment: what its disks held. It can be restored any number of times."""

    def __init__(self, disks: Mapping[int, TestDisk]) -> None:
        self.disks = disks

    def copies(self, clock: TestClock) -> dict[int, TestDisk]:
        """Disks for nodes with this clock. If there is no room for all of them, none is left."""
        made: dict[int, TestDisk] = {}
        try:
            for node_id, disk in self.disks.items():
                made[node_id] = disk.copy(clock.now_ms)
        except BaseException:
            for each in made.values():
                each.close()
            raise
        return made

    def close(self) -> None:
        """Free its memory. It cannot be restored any more."""
        for disk in self.disks.values():
            disk.close()


class Topic(str):
    """The name of a topic that exists until the test ends, or until the end of a `with` block."""

    _kafka: Kafka

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes its name."""
        return str, (str(self),)

    def delete(self) -> None:
        self._kafka.delete_topic(self)

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.delete_topic(self)


class Kafka:
    """`with`, `async with` under trio or asyncio, or `start` and `stop`."""

    def __new__(cls, *_: Any, process: bool = False, **__: Any) -> Kafka:
        if process and cls is Kafka:
            # By its name, because it is made of this class, and few need it.
            form = import_module("kafkacompat.testing.kafka_process").KafkaProcess
            return cast("Kafka", super().__new__(form))
        return super().__new__(cls)

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        nodes: int = 1,
        version: str | None = None,
        flavor: str | None = None,
        racks: Sequence[str] = (),
        secure: bool | str | Security = False,
        users: Mapping[str, str] | None = None,
        process: bool = False,
    ) -> None:
        """`settings`: Kafka's names and values, over the defaults for tests. `version`: the release, such as 3.9, as which it
        shows itself to clients. `flavor`: the other Kafka whose refusals it has (testing/flavors.py). `racks`: of all nodes, in
        their order. `secure`: the protocol of clients, such as SASL_SSL, which is that of True. `users`: their passwords by name.
        `process`: the nodes run in a process of their own. Raises UnknownSetting, ConfigError, ValueError."""
        self._version, self._flavor_name = version, flavor
        self._flavor = _flavor(flavor, nodes)
        self._release = _release(version) or (None if self._flavor is None else self._flavor.release)
        self.name = f"kafkacompat-{next(_numbers)}"
        self.clock = TestClock()
        """Of all nodes."""
        self.nodes: dict[int, NodeThread] = {}
        """The nodes that run, or have run last, by id."""
        self._log = BrokerLog(self.name)
        self._hooks = Hooks()
        self._causes = Causes()
        """What was done to it, for the reasons of refusals."""
        self._exchanges = Exchanges(
            lambda node_id: NodeState(self.nodes[node_id].server, node_id, self._causes)
        )
        self.paused = cluster.Paused()
        self._ports = self._reserved_ports()
        self._settings = dict(settings or {})
        of_flavor = {} if self._flavor is None else self._flavor.settings
        self._racks = racks
        self.security = security_of(secure, users)
        """What clients need beside the address."""
        try:
            self._configs = nodes_settings(
                {**of_flavor, **self._settings}, nodes, self._ports, self._release, racks, self.security
            )
        except BaseException:
            self._ports.release()
            raise
        self._refusals = Hooks()
        """Of the flavor."""
        for rule in () if self._flavor is None else self._flavor.rules:
            self._refusals.faults.add(rule)
        self._standstill = Standstill()
        self._links = Links(_addresses(self._configs))
        self._node_links = {node_id: NodeLinks(self._links, node_id) for node_id in self._configs}
        self._cluster_id = uuid_to_text(SystemRandom().uuid())
        self._disks: dict[int, TestDisk] = {}
        self._blank: Snapshot
        self._topics: list[Topic] = []

    def _arguments(self) -> dict[str, Any]:
        """Those of another one like it, wherever it runs. `security` has the users."""
        return {
            "settings": self._settings,
            "nodes": len(self._configs),
            "version": self._version,
            "flavor": self._flavor_name,
            "racks": self._racks,
            "secure": self.security,
        }

    def _reserved_ports(self) -> ReservedPorts:
        return ReservedPorts()

    def _new_disk(self) -> TestDisk:
        return MemoryDisk(self.clock.now_ms)

    def _use(self, disks: dict[int, TestDisk]) -> None:
        """From now on the nodes that start have these disks."""
        self._disks = disks

    # Its life.

    def start(self) -> None:
        """Return when clients are served."""
        self._begin({node_id: self._formatted(node_id) for node_id in self._configs})
        try:
            # A test may ask a coordinator at once by `ask`, without a FindCoordinator that would create its topic.
            if len(self._configs) == 1 and self._flavor_name is None and self._release is None:
                self._patiently(self._create_coordinators_topics)
            self._blank = self.snapshot()
        except BaseException:
            self.stop()
            raise

    def _create_coordinators_topics(self) -> None:
        node = self._any()
        self._one(node, lambda operations: operations.create_coordinators_topics(node.config))

    def _formatted(self, node_id: int) -> TestDisk:
        config, disk = self._configs[node_id], self._new_disk()
        for path in (*config.log_dirs, config.metadata_log_dir):
            disk.make_directory(path)
        format_node(
            config,
            disk,
            SystemRandom(),
            self.clock.now_ms(),
            cluster_id=self._cluster_id,
            standalone=False,
            users=self.security.scram_users(SystemRandom()) if has_scram(self._release) else (),
            feature_levels=None if self._release is None else default_levels(self._release.metadata_version),
        )
        return disk

    def _begin(self, disks: dict[int, TestDisk]) -> None:
        self._use(disks)
        keep_log(self._log)
        try:
            for node_id in self._configs:
                self._make(node_id).begin()
            for node in self.nodes.values():
                node.wait_ready()
            self._settle()
        except BaseException:
            self.stop()
            raise

    def _make(self, node_id: int) -> NodeThread:
        self._disks[node_id].process_ended()
        node = self.nodes[node_id] = NodeThread(
            self._configs[node_id],
            self._disk(node_id),
            clock=self.clock,
            wrap=lambda dispatcher: self._around(node, dispatcher),
            links=self._node_links[node_id],
            name=f"{self.name} node {node_id}",
        )
        return node

    def _disk(self, node_id: int) -> FaultyDisk:
        """What a node has for a disk."""
        return FaultyDisk(self._disks[node_id], self._hooks.faults, node_id)

    def _around(self, node: NodeThread, own: Dispatcher) -> Dispatcher:
        """What stands before the dispatcher of a node's listener."""
        listeners = client_listeners(node.config, len(self._configs))
        dispatcher: Dispatcher = EarlyAnswers(own, node.services.work_clock, listeners)
        if self._release is not None:
            from kafkacompat.testing.versions import ReleaseDispatcher

            dispatcher = ReleaseDispatcher(dispatcher, self._release, listeners)
        if self._flavor is not None and self._flavor.rules:
            dispatcher = intercepted(dispatcher, own, self._refusals, node)
        return intercepted(dispatcher, own, self._hooks, node)

    def _settle(self) -> None:
        """Return when each node knows that all of them serve."""
        if len(self._configs) > 1:
            ids = {node.config.node_id for node in self._running()}
            until(
                lambda: all(serving >= ids for serving in self._each(lambda node: node.serving())),
                TIMEOUT_S,
                lambda: "the nodes do not all serve",
            )

    def stop(self) -> None:
        """End it. Nothing is left: no thread, no file, no port."""
        self.paused.resume_all()
        running = [node for node in self.nodes.values() if node.is_running]
        try:
            for node in running:
                node.begin_kill()
            for node in running:
                node.kill()
        finally:
            for disk in self._disks.values():
                disk.close()
            self._ports.release()
            end_log(self._log)

    def start_node(self, node_id: int) -> None:
        """Start a node that was stopped or killed, on its disk and at its port. Return when it serves. Raises RuntimeError if it
        runs."""
        if self.nodes[node_id].is_running:
            raise RuntimeError(f"node {node_id} runs already")
        self._make(node_id).start()
        self._settle()

    def stop_node(self, node_id: int) -> None:
        """Stop a node in order, as by a signal."""
        self.paused.resume(node_id)
        self._note(f"node {node_id} was stopped")
        self.nodes[node_id].stop()

    def kill_node(self, node_id: int) -> None:
        """End a node as kill -9 does. What it has written stays."""
        self.paused.resume(node_id)
        self._note(f"node {node_id} was killed")
        self.nodes[node_id].kill()

    def restart_node(self, node_id: int) -> None:
        """Stop a node in order, and start it again. Return when it serves."""
        self.stop_node(node_id)
        self.start_node(node_id)

    def pause_node(self, node_id: int) -> None:
        """Let a node stand still, as kill -STOP does: its connections stay, and nothing is answered."""
        self._note(f"node {node_id} was paused")
        self.paused.pause(node_id, self.nodes[node_id])

    def resume_node(self, node_id: int) -> None:
        self.paused.resume(node_id)

    def partition(self, *sides: Collection[int]) -> None:
        """Cut the links between nodes of different sides: `partition([1], [2, 3])`. Clients reach all of them."""
        parts = " and ".join(str([*side]) for side in sides)
        self._note(f"nodes {parts} were cut off from each other")
        self._links.cut(sides)

    def heal(self) -> None:
        """Mend all links."""
        self._links.mend()
        for node_id, links in self._node_links.items():
            node = self.nodes[node_id]
            if node_id in self.paused:
                node.time.soon(links.mended)  # as soon as it goes on
            elif node.is_running:
                node.call(links.mended)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Make a node the leader of a partition. It becomes a replica, in place of the last one, if it is none. Raises Refused."""
        self._note(f"move_leader made node {to} the leader of {topic}-{partition}")
        cluster.move_leader(self, topic, partition, to)

    def move_coordinator(
        self, *, to: int, group: str | None = None, transactional_id: str | None = None
    ) -> None:
        """Make a node the coordinator of a group, or of a transactional id. Raises Refused."""
        if (group is None) == (transactional_id is None):
            raise TypeError("name a group or a transactional id")
        key_type = cluster.TRANSACTION_KEYS if group is None else cluster.GROUP_KEYS
        self._note(f"move_coordinator made node {to} the one of {group or transactional_id!r}")
        cluster.move_coordinator(self, group or transactional_id or "", key_type, to)

    def shrink_isr(self, topic: str, partition: int = 0, *, to: Collection[int]) -> Fault:
        """Leave only these replicas in sync. The others cannot fetch until the fault is removed."""
        self._note(f"shrink_isr left only nodes {[*to]} in sync")
        return cluster.shrink_isr(self, topic, partition, to)

    def expire_session(self, group: str, member_id: str | None = None) -> None:
        """Remove a member from its group, or all members, as when their sessions end. Raises LookupError, Refused."""
        who = "its members" if member_id is None else f"member {member_id!r}"
        self._causes.note(f"expire_session has removed {who}", about=(GROUP, group))
        cluster.expire_session(self, group, member_id)

    def fence_producer(self, transactional_id: str) -> None:
        """Fence the producers that have a transactional id now, as another producer does. Raises Refused."""
        self._causes.note("fence_producer has begun an epoch of it", about=(TRANSACTION, transactional_id))
        cluster.fence_producer(self, transactional_id)

    def _note(self, text: str) -> None:
        """Keep what is about to be done, and how partitions stand before."""
        running = self._running()
        if len(self._configs) > 1 and running:
            node = running[0]
            self._causes.note(text, node.call(lambda: NodeState(node.server, node.config.node_id).stand()))

    def assign(self, group: str, assignment: Mapping[str, Mapping[str, Collection[int]]]) -> None:
        """Give a group of the consumer protocol (KIP-848) a target assignment: partitions by topic, by member id. It holds until
        the group has reason for another one. Raises ValueError, LookupError."""
        cluster.assign(self, group, assignment)

    def ask(self, node_id: int, message: Any) -> Any:
        """The answer of a node to a request, by its typed message. No connection is involved."""
        return self._one(self.nodes[node_id], lambda node: node.ask(message))

    def leads(self, node_id: int, topic: str, partition: int) -> bool:
        """Whether a node serves a partition as its leader."""
        return partition in self._one(self.nodes[node_id], lambda node: node.led(topic))

    def __enter__(self) -> Kafka:
        """Start it, unless it runs already."""
        if not self.nodes:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Kafka:
        await in_thread(self.__enter__, self.stop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.stop)

    @property
    def node(self) -> NodeThread:
        """The only node, or the first one."""
        return self.nodes[min(self.nodes)]

    @property
    def bootstrap_servers(self) -> str:
        """For a client's bootstrap.servers: host:port of each node's first listener, with commas between them."""
        first = [config.broker_listeners()[0] for config in self._configs.values()]
        return ",".join(host_and_port(each.host, each.port) for each in first)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bootstrap_servers}>"

    @property
    def client_listeners(self) -> frozenset[str]:
        """The names of the listeners that clients use, and no node. If the test has chosen listeners without such a one, all of
        brokers."""
        config = next(iter(self._configs.values()))
        own = client_listeners(config, len(self._configs))
        return own or frozenset(each.listener_name for each in config.broker_listeners())

    @property
    def pid(self) -> int:
        """The process in which its nodes run."""
        return os.getpid()

    @property
    def log(self) -> BrokerLog:
        """What its nodes have logged."""
        return self._log

    @property
    def exchanges(self) -> Exchanges:
        """The last requests, while they are recorded."""
        return self._exchanges

    @property
    def faults(self) -> Faults:
        """What goes wrong, on all nodes."""
        return self._hooks.faults

    def record_requests(self) -> None:
        """Keep the last requests from now on, for `requests`. pytest's fixtures do it."""
        if not self._hooks.watchers:
            self._hooks.watch(self._exchanges.add)

    def watch_requests(self, watcher: Watcher) -> None:
        """Tell of each request and what became of it, in the thread of its node. What the watcher raises is logged."""
        self._hooks.watch(watcher)

    def requests(self, **wanted: Any) -> list[Recorded]:
        """The last requests of clients and nodes, oldest first, whose fields have these values, such as `api="Produce"` or
        `client_id="app"`. Raises ValueError for an API that there is not, TypeError for a field, RuntimeError while nothing is
        recorded."""
        if not self._hooks.watchers:
            raise RuntimeError("no requests are recorded: call record_requests first")
        return self.exchanges.list(**wanted)

    # Its state as a whole.

    def reset(self) -> None:
        """Forget everything: topics, groups, transactions, ACLs, quotas, settings, producer ids. Clients stay connected."""
        self._topics.clear()
        self.restore(self._blank)

    def snapshot(self) -> Snapshot:
        """Keep the present state. Nothing happens on any node meanwhile."""
        entered, resume = threading.Semaphore(0), threading.Event()

        def stand() -> None:
            entered.release()
            resume.wait(TIMEOUT_S)

        running = self._running()  # those that are paused stand already
        with ThreadPoolExecutor(max(1, len(running))) as threads:
            try:
                for node in running:
                    threads.submit(node.call, stand)
                for _ in running:
                    if not entered.acquire(timeout=TIMEOUT_S):
                        raise TimeoutError(f"the nodes do not stand still after {TIMEOUT_S:g} s")
                return Snapshot({node_id: disk.copy() for node_id, disk in self._disks.items()})
            finally:
                resume.set()

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state. Clients that wait for an answer are disconnected, the others stay connected. All nodes run then."""
        disks = snapshot.copies(self.clock)  # without room for them the nodes go on
        self.paused.resume_all()
        self._causes.clear()
        running = {node_id: node for node_id, node in self.nodes.items() if node.is_running}
        for retirement in [node.begin_retirement() for node in running.values()]:
            retirement.result(TIMEOUT_S)
        before = self._disks
        self._use(disks)
        exchanges = [node.begin_exchange(self._disk(node_id)) for node_id, node in running.items()]
        for node_id in self._disks.keys() - running.keys():
            self._make(node_id).begin()
        for exchange in exchanges:
            exchange.result(TIMEOUT_S)
        for disk in before.values():
            disk.close()
        for node in self.nodes.values():
            node.wait_ready()
        self._settle()

    def snapshot_in_loop(self, node_id: int) -> Snapshot:
        """The same, called in the thread of a node."""
        others = {
            node.config.node_id: node.time.soon for node in self._running() if node.config.node_id != node_id
        }
        return self._standstill.during(
            node_id, others, lambda: Snapshot({each: disk.copy() for each, disk in self._disks.items()})
        )

    def fork(self, snapshot: Snapshot | None = None) -> Kafka:
        """Another Kafka, which has started, with the same state, or that of a snapshot, at addresses of its own. The caller stops
        it, or uses it in a `with` block."""
        own = snapshot or self.snapshot()
        other = Kafka(**self._arguments())
        if self._hooks.watchers:
            other.record_requests()
        other.clock = self.clock.copy()
        other._cluster_id = self._cluster_id
        other._blank = self._blank
        other._begin(own.copies(other.clock))
        if snapshot is None:
            own.close()
        return other

    # Asking its nodes.

    def _running(self) -> list[NodeThread]:
        """Those that can be asked."""
        return [
            node for node_id, node in self.nodes.items() if node.is_running and node_id not in self.paused
        ]

    def _any(self) -> NodeThread:
        """One that can be asked. Raises NodeEnded."""
        running = self._running()
        if not running:
            raise NodeEnded("no node runs, or all are paused")
        return running[0]

    def _each(self, ask: Callable[[NodeOperations], Any]) -> list[Any]:
        """What each running node says. `ask` returns a value, or a coroutine over deferred values."""
        return [self._one(node, ask) for node in self._running()]

    def _one(self, node: NodeThread, ask: Callable[[NodeOperations], Any]) -> Any:
        async def asked() -> Any:
            answer = ask(NodeOperations(node.server))
            return await answer if hasattr(answer, "__await__") else answer

        return node.carry_out(asked)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while a cluster settles. Raises Refused."""
        end_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return ask()
            except Refused as refused:
                if refused.code not in NOT_YET or time.monotonic() > end_s:
                    raise
            time.sleep(0.005)

    # Topics and records.

    def own_name(self, name: str) -> str:
        """A name that begins with `name` and that nobody else has: for a group, a transactional id, a topic."""
        return f"{name}-{SystemRandom().randrange(1 << 32):08x}"

    def topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> Topic:
        """Create a topic with a name of its own that begins with `name`. It is gone when the test ends."""
        topic = Topic(self.own_name(name))
        topic._kafka = self
        self.create_topic(
            topic, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        self._topics.append(topic)
        return topic

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic with this name. Return when every node knows it. Raises Refused."""
        texts = {
            each: str(value).lower() if isinstance(value, bool) else str(value)
            for each, value in (configs or {}).items()
        }
        self._patiently(
            lambda: self._one(
                self._any(),
                lambda node: node.create_topic(name, partitions, replication_factor, texts),
            )
        )
        until(
            lambda: (
                len(self._leaders(name)) >= partitions and all(name in each for each in self._each(_topics))
            ),
            TIMEOUT_S,
            lambda: f"topic {name} is not led by anybody",
        )

    def _leaders(self, name: str) -> dict[int, NodeThread]:
        """Who leads each partition."""
        return {
            index: node for node in self._running() for index in self._one(node, lambda each: each.led(name))
        }

    def delete_topic(self, name: str) -> None:
        """Do nothing if it does not exist any more. Raises Refused."""
        self._topics = [each for each in self._topics if each != name]
        self._delete_topic(name)

    def _delete_topic(self, name: str) -> None:
        try:
            self._patiently(lambda: self._one(self._any(), lambda node: node.delete_topic(name)))
        except Refused as refused:
            if refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    def end_test(self) -> None:
        """Make ready for the next test: its time runs, its nodes run, the network is whole, and what `topic` has made is gone."""
        self._recover()
        for topic in list(self._topics):
            self.delete_topic(topic)

    def _recover(self) -> None:
        self.heal()
        self.paused.resume_all()
        self.clock.resume()
        for node_id in [node_id for node_id, node in self.nodes.items() if not node.is_running]:
            self._make(node_id).begin()
        for node in self.nodes.values():
            node.wait_ready()
        self._settle()

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, without Kafka's own."""
        found: dict[str, int] = self._one(self._any(), _topics)
        return {name: count for name, count in found.items() if not name.startswith("__")}

    def ends(self, topic: str) -> dict[int, Ends]:
        """Where each partition begins and ends."""
        return {
            index: each
            for found in self._each(lambda node: node.ends(topic))
            for index, each in sorted(found.items())
        }

    def records(self, topic: str, *, partition: int | None = None) -> list[Record]:
        """All records of a topic, in the order of partitions and offsets, from the brokers' logs. Raises LookupError for a topic
        that does not exist."""
        topics = self._one(self._any(), _topics)
        if topic not in topics:
            known = ", ".join(sorted(name for name in topics if not name.startswith("__"))) or "none"
            raise LookupError(f"topic {topic} does not exist; those that do: {known}")
        found: list[Record] = [
            each for records in self._each(lambda node: node.records(topic)) for each in records
        ]
        found.sort(key=lambda each: (each.partition, each.offset))
        return [each for each in found if partition is None or each.partition == partition]

    def produce(
        self,
        topic: str,
        values: Iterable[Value],
        *,
        key: Value = None,
        headers: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append records. Return when they are committed. The topic is created if it does not exist.

        A value is bytes, text, None, or anything that JSON can say. Without `partition`, a key decides as in Kafka's clients, and
        records without a key go to partition 0. Raises Refused.
        """
        if topic not in self.topics():
            self.create_topic(topic, partitions=-1)
        key_bytes = as_bytes(key)
        # Some nodes learn of new partitions later.
        count = max(known.get(topic, 0) for known in self._each(_topics))
        if partition is None:
            partition = 0 if key_bytes is None else partition_of_key(key_bytes, count)
        elif partition >= count:
            text = f"topic {topic} has {count} partitions, and no partition {partition}"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        at_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        told = as_headers(headers)
        waiting = [LogRecord(0, at_ms, key_bytes, as_bytes(value), told) for value in values]
        for first in range(0, len(waiting), BATCH_RECORDS):
            batch = [
                record._replace(offset_delta=delta)
                for delta, record in enumerate(waiting[first : first + BATCH_RECORDS])
            ]
            self._patiently(lambda: self._append(topic, partition, batch))  # noqa: B023  # called at once

    def _append(self, topic: str, partition: int, batch: list[LogRecord]) -> int:
        leader = self._leaders(topic).get(partition)
        if leader is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"nobody leads {topic}-{partition}")
        offset: int = self._one(leader, lambda node: node.produce(topic, partition, batch))
        return offset

    # Groups and transactions.

    def groups(self) -> dict[str, Group]:
        """All groups, by id."""
        return self._patiently(lambda: _merged(self._each(lambda node: node.groups())))

    def committed(self, group: str) -> dict[tuple[str, int], Committed]:
        """What a group has committed, by topic and partition."""

        def ask() -> dict[tuple[str, int], Committed]:
            found = self._each(lambda node: node.committed(group))
            if all(each is None for each in found):
                raise Refused(ErrorCode.NOT_COORDINATOR, f"nobody coordinates group {group}")
            return _merged([each for each in found if each])

        return self._patiently(ask)

    def transactions(self) -> dict[str, Transaction]:
        """All transactional ids."""
        return self._patiently(lambda: _merged(self._each(lambda node: node.transactions())))

    def lag(self, group: str, topic: str | None = None) -> int:
        """How many offsets lie between what the group has committed and the ends of its partitions: of those that it has committed
        or is assigned, or of all partitions of the topic."""
        committed = self.committed(group)
        known = self.groups().get(group)
        wanted = set(committed)
        for member in known.members if known is not None else ():
            wanted |= {(name, index) for name, indexes in member.partitions.items() for index in indexes}
        if topic is not None:
            wanted = {each for each in wanted if each[0] == topic}
            wanted |= {(topic, index) for index in self.ends(topic)}
        behind = 0
        for name in sorted({name for name, _ in wanted}):
            for index, end in self.ends(name).items():
                if (name, index) in wanted:
                    at = committed[name, index].offset if (name, index) in committed else end.first
                    behind += max(0, end.last_stable - at)
        return behind

    # What tests say.

    def wait_until(
        self,
        condition: Callable[[], object] | None = None,
        *,
        group: str | None = None,
        lag: int | None = None,
        topic: str | None = None,
        members: int | None = None,
        state: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Wait until all of these hold: `condition` returns something true; the group is no further behind than `lag`, in all of
        its partitions or in those of `topic`; it is stable with so many members; it is in this state.

        The time limit is real time, whatever the clock says. Raises AssertionError, which tells how the group stands.
        """

        def holds() -> bool:
            if condition is not None and not condition():
                return False
            if group is None:
                return True
            found = self.groups().get(group)
            if members is not None and not (
                found is not None and len(found.members) == members and found.state in ("Stable", "Empty")
            ):
                return False
            if state is not None and (found is None or found.state != state):
                return False
            if lag is not None:
                committed = self.committed(group)
                has_any = any(topic is None or name == topic for name, _ in committed)
                return has_any and self.lag(group, topic) <= lag
            return True

        def told() -> str:
            return "it does not hold" if group is None else told_group(self, group)

        until(holds, timeout_s, told)

    def joined(self, group: str, members: int = 1, *, timeout_s: float = TIMEOUT_S) -> Group:
        """Wait until a group is stable with so many members. Raises AssertionError."""
        self.wait_until(group=group, members=members, timeout_s=timeout_s)
        return self.groups()[group]

    def assert_produced(
        self,
        topic: str,
        values: Iterable[Value],
        *,
        key: Value = None,
        headers: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        partition: int | None = None,
        timeout_s: float = 10.0,
    ) -> list[Record]:
        """Wait until the topic has exactly these values, and return their records. Only those with this key and these headers
        count, and only those that a consumer of committed records would see. The order counts within a partition.

        Raises AssertionError, which tells what is there instead.
        """
        return expect(self, topic, [*values], as_bytes(key), as_headers(headers), partition, timeout_s)


def KafkaCluster(
    settings: Mapping[str, object] | None = None,
    *,
    nodes: int = 3,
    version: str | None = None,
    flavor: str | None = None,
    racks: Sequence[str] = (),
    secure: bool | str = False,
    users: Mapping[str, str] | None = None,
    process: bool = False,
) -> Kafka:
    """A Kafka of several nodes, three of them with the controller role too."""
    return Kafka(
        settings,
        nodes=nodes,
        version=version,
        flavor=flavor,
        racks=racks,
        secure=secure,
        users=users,
        process=process,
    )


def _flavor(name: str | None, nodes: int) -> Flavor | None:
    if name is None:
        return None
    from kafkacompat.testing.flavors import flavor

    found = flavor(name)
    if nodes < found.nodes_min:
        raise ValueError(f"flavor={name!r} needs nodes={found.nodes_min}, not {nodes}")
    return found


def _release(version: str | None) -> Release | None:
    if version is None:
        return None
    from kafkacompat.testing.versions import release

    return release(version)


def _addresses(configs: Mapping[int, ServerConfig]) -> dict[tuple[str, int], int]:
    """Which node listens at a host and port."""
    return {
        (each.host, each.port): node_id for node_id, config in configs.items() for each in config.listeners()
    }


def _topics(node: NodeOperations) -> dict[str, int]:
    return node.topics()


def _merged(found: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    return {key: value for each in found for key, value in each.items()}
