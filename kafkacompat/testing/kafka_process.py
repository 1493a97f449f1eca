"""A Kafka whose nodes run in a process of their own, behind the same handle: `Kafka(process=True)`.

All that is asked of nodes is asked there (hosted.py). What outlives the process is here: ports, the disks' folder, the clock,
faults, recorded requests, the log. So a Kafka that was killed starts again as one in this process does.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.exchange import Watcher
from kafkacompat.faults import report
from kafkacompat.testing import cluster
from kafkacompat.testing.channel import Channel, ChannelEnded
from kafkacompat.testing.clock import TestClock
from kafkacompat.testing.exchanges import Exchanges
from kafkacompat.testing.expectations import Value, as_bytes, as_headers
from kafkacompat.testing.faults import Fault, Faults, Rule
from kafkacompat.testing.folder_disk import FolderDisk
from kafkacompat.testing.forkserver import ForkServer, ServerEnded, fork_server
from kafkacompat.testing.hosted import Order, SentFault
from kafkacompat.testing.kafka import Kafka, Snapshot
from kafkacompat.testing.log import BrokerLog
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.settings import text_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kafkacompat.config import ServerConfig
    from kafkacompat.testing.node import NodeThread

HOSTED = "kafkacompat.testing.hosted"
Ask = Callable[..., Any]
"""The answer of the process. Raises what it raises, NodeEnded."""


class ProcessFaults(Faults):
    """The faults of the process, as the test has them."""

    def __init__(self, ask: Ask) -> None:
        """`ask` returns None while the process does not run."""
        super().__init__()
        self._ask = ask
        self._next = itertools.count(1)
        self._numbers: dict[Fault, int] = {}

    def add(self, rule: Rule) -> Fault:
        fault = Fault(rule, self)
        self._keep(fault, next(self._next))
        self._ask("put_fault", self._sent(fault))
        return fault

    def adopt(self, sent: SentFault) -> Fault:
        """One that has begun in the process."""
        fault = Fault(sent.rule, self)
        fault.go_on_from(sent.hits, sent.seen)
        self._keep(fault, sent.number)
        return fault

    def _keep(self, fault: Fault, number: int) -> None:
        with self._met:
            self._numbers[fault] = number
            self._all.append(fault)
            self.active = (*self.active, fault)

    def remove(self, fault: Fault) -> None:
        super().remove(fault)
        self._ask("take_fault", self._numbers.get(fault))

    def clear(self) -> None:
        super().clear()
        with self._met:
            self._numbers.clear()
        self._ask("clear_faults")

    def wait_until(self, is_so: Callable[[], bool], timeout: float, told: Callable[[], str]) -> None:
        self.catch_up()
        super().wait_until(is_so, timeout, told)

    def catch_up(self) -> None:
        self._ask("catch_up")

    def _sent(self, fault: Fault) -> SentFault:
        rule = fault.rule
        return SentFault(self._numbers[fault], replace(rule, when=None), rule.when is not None, *fault.counts)

    def sent(self) -> list[SentFault]:
        """Those that may still hit something, for another process."""
        with self._met:
            return [self._sent(fault) for fault in self.active]

    # What the process tells and asks.

    def counted(self, number: int, hits: int, seen: int) -> None:
        with self._met:
            for fault in [fault for fault, each in self._numbers.items() if each == number]:
                fault._hits, fault._seen = hits, seen
                if fault.is_over:
                    self.active = tuple(each for each in self.active if each is not fault)
            self._met.notify_all()

    def fits(self, number: int, request: Any) -> bool:
        """What the function of the test says."""
        with self._met:
            rules = [fault.rule for fault, each in self._numbers.items() if each == number]
        return any(rule.when is not None and rule.when(request) for rule in rules)


class ProcessClock(TestClock):
    """The clock of the process. It goes on while none runs."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    def _does(self, name: str, *arguments: Any, **named: Any) -> bool:
        """Returns False if no process runs."""
        with self._moving:
            try:
                self._ask("move_clock", name, *arguments, **named)
            finally:
                state = self._ask("clock_state")
                if state is not None:
                    self.set_state(state)
            return state is not None

    def freeze(self) -> None:
        if not self._does("freeze"):
            super().freeze()

    def resume(self) -> None:
        if not self._does("resume"):
            super().resume()

    def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        if not self._does("advance", by, **parts):
            super().advance(by, **parts)

    def at(self, moment: datetime | int) -> None:
        if not self._does("at", moment):
            super().at(moment)

    def settle(self) -> None:
        self._does("settle")


class ProcessPaused(cluster.Paused):
    """The nodes that stand still in the process."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    def pause(self, node_id: int, node: NodeThread) -> None:
        self._ask("pause_node", node_id)

    def resume(self, node_id: int) -> None:
        self._ask("resume_node", node_id)

    def resume_all(self) -> None:
        self._ask("resume_all")

    def __contains__(self, node_id: int) -> bool:
        return node_id in (self._ask("paused_nodes") or ())


@dataclass(frozen=True, slots=True)
class ProcessNode:
    """What is known here of a node."""

    config: ServerConfig
    _ask: Ask

    @property
    def is_running(self) -> bool:
        return self.config.node_id in (self._ask("running_nodes") or ())


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    channel: Channel
    server: ForkServer


def _in_process(method: Any) -> Any:
    """The method of the Kafka in the process."""
    name = method.__name__

    @wraps(method)
    def ask(self: KafkaProcess, *arguments: Any, **named: Any) -> Any:
        return self._ask(name, *arguments, **named)

    return ask


class KafkaProcess(Kafka):
    """Its nodes run in one process. `kill_node` ends a single node by kill -9 of the process; a node of several is ended in it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """The arguments of `Kafka`."""
        super().__init__(*given, **named)
        self._process: _Process | None = None
        self._folder: str | None = None
        """Of its disks and their copies."""
        self._watchers: tuple[Watcher, ...] = ()
        self._faults = ProcessFaults(self._ask_if_running)
        self.clock = ProcessClock(self._ask_if_running)
        self.paused = ProcessPaused(self._ask_if_running)

    # Its process.

    def start(self) -> None:
        self._blank = self._launch(None)

    def _launch(self, disks: Mapping[int, FolderDisk] | None) -> Any:
        """Start a process. Return when its nodes serve."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="kafkacompat-")
        order = Order(
            self.name,
            {
                **self._arguments(),
                "settings": {name: text_of(value) for name, value in self._settings.items()},
            },
            self._ports.numbers,
            self._folder,
            self._cluster_id,
            self.clock.state(),
            bool(self._hooks.watchers),
            bool(self._watchers),
            self._faults.sent(),
            disks,
        )
        try:
            server, pid, connection = _forked(self._folder)
        except BaseException:
            self.stop()
            raise
        channel = Channel(connection, self._serve, self._told)
        self._process = _Process(pid, channel, server)
        threading.Thread(target=channel.run, name=f"{self.name} process", daemon=True).start()
        ask = self._ask_if_running
        self.nodes = {
            node_id: cast("NodeThread", ProcessNode(config, ask)) for node_id, config in self._configs.items()
        }
        try:
            return self._ask("order", order)
        except BaseException:
            self.stop()
            raise

    def _begin(self, disks: Any) -> None:
        self._use(disks)
        self._launch(disks)

    @property
    def pid(self) -> int:
        """The process in which its nodes run, or have run last."""
        if self._process is None:
            raise NodeEnded("it has not started")
        return self._process.pid

    @property
    def _runs(self) -> bool:
        return self._process is not None and not self._process.channel.ended.is_set()

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Raises what the process raises, NodeEnded."""
        if self._process is not None:
            try:
                return self._process.channel.call(name, *arguments, **named)
            except ChannelEnded:
                pass
        raise NodeEnded("no node runs, because its process does not run")

    def _ask_if_running(self, name: str, *arguments: Any, **named: Any) -> Any:
        """None if it does not run."""
        if self._runs:
            try:
                return self._ask(name, *arguments, **named)
            except NodeEnded:
                if self._runs:
                    raise
        return None

    def _serve(self, name: str, *arguments: Any) -> Any:
        """What the process asks."""
        if name == "when":
            return self._faults.fits(*arguments)
        (exchange,) = arguments
        for watcher in self._watchers:
            try:
                watcher(exchange)
            except Exception as error:  # no request may fail because somebody looks at it
                report("a watcher of requests", error)
        return None

    def _told(self, name: str, *arguments: Any) -> None:
        """What the process tells."""
        match name:
            case "log":
                self._log.add(*arguments)
            case "recorded":
                self._exchanges.keep(*arguments)
            case "counted":
                self._faults.counted(*arguments)
            case "disks":
                self._use(*arguments)

    def _kill(self) -> None:
        """kill -9. What it has told is known when this returns."""
        process = self._process
        if process is not None:
            process.server.end(process.pid)
            process.channel.ended.wait()
            process.channel.close()

    def stop(self) -> None:
        """End it. Nothing is left: no process, no file, no port."""
        try:
            self._kill()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._ports.release()

    def kill_node(self, node_id: int) -> None:
        if len(self._configs) == 1:
            self._kill()
        else:
            self._ask("kill_node", node_id)

    def stop_node(self, node_id: int) -> None:
        self._ask_if_running("stop_node", node_id)

    def pause_node(self, node_id: int) -> None:
        if not self._runs:
            raise NodeEnded(f"node {node_id} does not run")
        self._ask("pause_node", node_id)

    def start_node(self, node_id: int) -> None:
        if self._runs:
            self._ask("start_node", node_id)
        else:
            self._begin(self._disks)

    def _recover(self) -> None:
        if self._runs:
            self._ask("_recover")
        else:
            self._begin(self._disks)
            self.clock.resume()

    # What is kept here.

    @property
    def faults(self) -> Faults:
        self._faults.catch_up()
        return self._faults

    @property
    def log(self) -> BrokerLog:
        self._faults.catch_up()
        return self._log

    @property
    def exchanges(self) -> Exchanges:
        self._faults.catch_up()
        return self._exchanges

    def record_requests(self) -> None:
        super().record_requests()
        self._ask_if_running("record_requests")

    def watch_requests(self, watcher: Watcher) -> None:
        """The node waits meanwhile, as in process. The watcher is called in another thread."""
        self._watchers = (*self._watchers, watcher)
        if len(self._watchers) == 1:
            self._ask_if_running("watch")

    # Its state as a whole.

    def snapshot(self) -> Snapshot:
        if self._runs:
            found: Snapshot = self._ask("snapshot")
            return found
        return Snapshot({node_id: disk.copy() for node_id, disk in self._disks.items()})

    def restore(self, snapshot: Snapshot) -> None:
        if self._runs:
            self._ask("restore", snapshot)
        else:
            before = self._disks
            self._begin(snapshot.copies(self.clock))
            for disk in before.values():
                disk.close()

    def snapshot_in_loop(self, node_id: int) -> Snapshot:
        raise RuntimeError("a Kafka in a process of its own has no loop here")

    def fork(self, snapshot: Snapshot | None = None) -> Kafka:
        own = snapshot or self.snapshot()
        other = KafkaProcess(**self._arguments())
        if self._hooks.watchers:
            other.record_requests()
        other.clock.set_state(self.clock.state())
        other._cluster_id = self._cluster_id
        other._folder = folder = tempfile.mkdtemp(prefix="kafkacompat-")
        other._blank = Snapshot(_copied(self._blank, folder))
        other._begin(_copied(own, folder))
        if snapshot is None:
            own.close()
        return other

    # What is asked of its nodes.

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
        self._ask(
            "produce",
            topic,
            [as_bytes(value) for value in values],
            key=as_bytes(key),
            headers=as_headers(headers),
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        self._ask(
            "create_topic",
            str(name),
            partitions=partitions,
            replication_factor=replication_factor,
            configs={each: text_of(value) for each, value in (configs or {}).items()},
        )

    def shrink_isr(self, topic: str, partition: int = 0, *, to: Collection[int]) -> Fault:
        return self._faults.adopt(self._ask("shrunk_isr", topic, partition, to=[*to]))

    restart_node = _in_process(Kafka.restart_node)
    resume_node = _in_process(Kafka.resume_node)
    partition = _in_process(Kafka.partition)
    heal = _in_process(Kafka.heal)
    move_leader = _in_process(Kafka.move_leader)
    move_coordinator = _in_process(Kafka.move_coordinator)
    expire_session = _in_process(Kafka.expire_session)
    fence_producer = _in_process(Kafka.fence_producer)
    assign = _in_process(Kafka.assign)
    ask = _in_process(Kafka.ask)
    leads = _in_process(Kafka.leads)
    _delete_topic = _in_process(Kafka._delete_topic)
    topics = _in_process(Kafka.topics)
    ends = _in_process(Kafka.ends)
    records = _in_process(Kafka.records)
    groups = _in_process(Kafka.groups)
    committed = _in_process(Kafka.committed)
    transactions = _in_process(Kafka.transactions)
    lag = _in_process(Kafka.lag)


def _forked(folder: str) -> tuple[ForkServer, int, Connection]:
    """A process, and who ends it."""
    try:
        server = fork_server(HOSTED)
        return server, *server.fork(folder)
    except ServerEnded:
        server = fork_server(HOSTED)
        return server, *server.fork(folder)


def _copied(snapshot: Snapshot, folder: str) -> dict[int, Any]:
    disks = cast("Mapping[int, FolderDisk]", snapshot.disks)
    return {node_id: disk.copy(above=folder) for node_id, disk in disks.items()}
