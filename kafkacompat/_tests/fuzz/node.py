"""A whole node, assembled by the product's own builder, of which every step is watched.

Frames enter through the product's dispatch, one after another on each connection as its network has it. Whatever the node reports
as unexpected, logs with a stack or halts for is a finding; so is a step that does more than its budget.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from traceback import format_exception
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.meters import RequestMeters
from kafkacompat.config import ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.faults import listeners
from kafkacompat.ports import FileSlice, WorkerPools
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Reply
from kafkacompat.server.data_directories import format_node
from kafkacompat.server.raft_server import KafkaRaftServer
from kafkacompat.server.services import NodeServices
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.disk import SimulatedDisk
from kafkacompat.sim.processes import WALL_CLOCK_ZERO_MS, CoroutineRun, StepWork
from kafkacompat.sim.scheduler import Scheduler
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import WireError

from .ports import FrameNetwork, FrameServer, FullPool, NodeTime
from .watch import Watch

if TYPE_CHECKING:
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries

NODE_ID = 1
LOG_DIRECTORIES = ("/data/a", "/data/b")
CONTROLLER, BROKER = 0, 1
"""Listeners by number."""
LISTENER_NAMES = ("CONTROLLER", "PLAINTEXT")
STARTED_WITHIN_MS = 60_000
STEP_CALLS_MAX = 4_000
"""Calls of the disk that one step of the loop may make."""
STEP_BYTES_MAX = 64 * 1024 * 1024
STEP_TIMERS_MAX = 20_000
REPLY_BYTES_MAX = 64 * 1024 * 1024
SCRIBBLE = 0xA5


class Finding(AssertionError):
    """What a node must not do, whatever it is sent."""


class Slowest:
    """The steps that took most of the processor, for runs that look for held-up loops; no test judges by it."""

    def __init__(self, kept: int = 8) -> None:
        self._kept = kept
        self.steps: list[tuple[float, str]] = []

    def add(self, seconds: float, what: str) -> None:
        if len(self.steps) < self._kept or seconds > self.steps[-1][0]:
            self.steps = sorted([*self.steps, (seconds, what)], reverse=True)[: self._kept]


class FuzzedConnection:
    """To one life of the node. `answers` in the order of the requests; `closed_for` says why it ended."""

    def __init__(self, node: FuzzedNode, server: FrameServer, info: ConnectionInfo) -> None:
        self._node = node
        self._server = server
        self.info = info
        self.answers: deque[bytes] = deque()
        self.closed_for: Exception | None = None
        self._frames: deque[bytes] = deque()
        self._replies: deque[Deferred[Reply | None]] = deque()
        self._parked: Deferred[Reply | None] | None = None

    @property
    def is_quiet(self) -> bool:
        """Everything that was sent is answered."""
        return not self._frames and not self._replies

    def send(self, frame: bytes) -> None:
        self._frames.append(frame)
        if self._parked is None:
            self._dispatch()

    def close(self) -> None:
        """The client goes away."""
        self._end(CloseConnection("the client closed it"))

    def _dispatch(self) -> None:
        while self._frames and self._parked is None and self.closed_for is None:
            frame = bytearray(self._frames.popleft())
            self._node.step("request", lambda frame=frame: self._carry_out(frame))

    def _carry_out(self, frame: bytearray) -> None:
        try:
            answer = self._server.dispatcher.dispatch(self.info, memoryview(frame))
        except (CloseConnection, WireError) as reason:
            self._end(reason)
            return
        if not isinstance(answer, Pending):
            scribble(frame)
            if answer is not None:
                self._replies.append(Deferred.of(answer))
                self._release()
            return
        reply = answer.reply
        self._replies.append(reply)
        if answer.blocks:
            self._parked = reply
        else:
            scribble(frame)

        def done(_: Deferred[Reply | None]) -> None:
            if self._parked is reply:
                scribble(frame)
                self._parked = None
            self._release()
            # In a turn of its own, as the network has it.
            self._node.soon(self._dispatch)

        reply.on_done(done)

    def _release(self) -> None:
        while self._replies and self._replies[0].done and self.closed_for is None:
            try:
                reply = self._replies.popleft().result()
            except (CloseConnection, WireError) as reason:
                self._end(reason)
                return
            if reply is not None:
                self.answers.append(whole(reply))

    def _end(self, reason: Exception) -> None:
        if self.closed_for is None:
            self.closed_for = reason
            self._frames.clear()
            self._server.dispatcher.connection_closed(self.info)


def scribble(frame: bytearray) -> None:
    """The network receives the next request into the same memory."""
    frame[:] = bytes([SCRIBBLE]) * len(frame)


def whole(reply: Reply) -> bytes:
    found = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in reply)
    if len(found) > REPLY_BYTES_MAX:
        raise Finding(f"an answer of {len(found)} bytes")
    if int.from_bytes(found[:4], "big") != len(found) - 4:
        raise Finding("an answer's size is not that of its frame")
    return found[4:]


class FuzzedNode(logging.Handler):
    """One machine and the life of the node on it; `start`, `kill` and `start` again."""

    def __init__(self, seed: int, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """`settings`: beside those of node_properties."""
        super().__init__(logging.ERROR)
        self.scheduler = Scheduler()
        self._work = work = StepWork()
        """What one step of the loop did: calls of the disk, bytes that crossed it, timers set."""
        self.disk = SimulatedDisk()
        self.disk.meet = lambda operation, path: work.disk_called()
        self.disk.moved = work.moved
        self.findings: list[str] = []
        self.steps = 0
        self.meters: RequestMeters | None = None
        """For a start to come, as the next two."""
        self.client_metrics: ClientMetricsManager | None = None
        self.client_series: ClientSeries | None = None
        self.slowest = Slowest()
        self.watch: Watch | None = None
        self.doing = ""
        """What a slow step is told by."""
        self._is_stepping = False
        self._random = Chance(seed, "node")
        self._connections = 0
        self._config = ServerConfig.from_properties(node_properties() | dict(settings))
        for path in self._config.log_dirs:
            self.disk.make_directory(path)
        format_node(
            self._config,
            self.disk,
            self._random,
            WALL_CLOCK_ZERO_MS,
            cluster_id="AAAAAAAAAAAAAAAAAAAAAQ",
            standalone=False,
        )
        self._time: NodeTime
        self._network: FrameNetwork
        self.reads: FullPool
        self.server: KafkaRaftServer

    # What is unexpected.

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.found(f"logged with a stack: {record.getMessage()}", error)

    def found(self, what: str, error: BaseException | None = None) -> None:
        stack = "" if error is None else "".join(format_exception(error))
        self.findings.append(f"{what}\n{stack}".rstrip())

    def _halt(self, error: BaseException) -> None:
        self.found("the node halts", error)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the node is touched; whatever it reports meanwhile is found."""
        logger = logging.getLogger("kafkacompat")
        told, level, propagate = self._reported, logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        listeners.append(told)
        try:
            yield
        finally:
            listeners.remove(told)
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate

    def _reported(self, error: BaseException) -> None:
        self.found("reported as a fault", error)

    # Steps and time.

    def step(self, what: str, call: Callable[[], None]) -> None:
        """One turn of the loop, or a part of the one that is under way."""
        if self._is_stepping:
            call()
            return
        work = self._work
        work.begin(what)
        self.steps += 1
        self._is_stepping = True
        began = time.thread_time()
        try:
            if self.watch is None:
                call()
            else:
                with self.watch.step(f"{what} {self.doing}"):
                    call()
        except Finding as finding:
            self.found(str(finding))
        except Exception as error:
            self.found(f"a {what} raises", error)
        finally:
            self._is_stepping = False
            self.slowest.add(time.thread_time() - began, f"{what} {self.doing}")
        for name, done, most in (
            ("calls of the disk", work.calls, STEP_CALLS_MAX),
            ("bytes of the disk", work.bytes, STEP_BYTES_MAX),
            ("timers", work.timers, STEP_TIMERS_MAX),
        ):
            if done > most:
                self.found(f"a {what} takes {done} {name}, which is more than {most}")

    def soon(self, call: Callable[[], None]) -> None:
        life = self._time
        self.scheduler.after(0, lambda _: call() if life.alive else None)

    def pass_time(self, milliseconds: int) -> None:
        """Everything that comes due happens."""
        scheduler = self.scheduler
        until_us = scheduler.now_us + milliseconds * 1000
        is_over = False

        def over(_: Any) -> None:
            nonlocal is_over
            is_over = True

        scheduler.after(until_us - scheduler.now_us, over)
        while not is_over:
            scheduler.run_next()

    # Lives.

    def start(self) -> None:
        """Until it serves; a finding if it does not within a minute of its time."""
        self._time = NodeTime(self.scheduler, self.step, self._work)
        self._network = FrameNetwork(self._time)
        self.reads = FullPool(self._time, self._random)
        self.server = KafkaRaftServer(
            NodeServices(
                config=self._config,
                clock=self._time,
                timers=self._time,
                work_clock=self._time,
                work_timers=self._time,
                tasks=Tasks(self._time),
                random=self._random,
                disk=self.disk,
                workers=replace(WorkerPools.of_one(self._time), reads=self.reads),
                network=self._network,
                monotonic_s=self._time.monotonic_s,
                keep=lambda: None,
                halt=self._halt,
                meters=self.meters,
                client_metrics=self.client_metrics,
                client_series=self.client_series,
            )
        )
        is_started = False

        async def start() -> None:
            await self.server.build(format_if_empty=False)
            await self.server.start()

        def started(_: None) -> None:
            nonlocal is_started
            is_started = True

        def begin() -> None:
            CoroutineRun(start(), started)

        self.step("start", begin)
        waited = 0
        while not is_started and waited < STARTED_WITHIN_MS:
            self.pass_time(10)
            waited += 10
        if not is_started:
            self.found("the node does not start")

    def kill(self) -> None:
        """As kill -9: what was written stays, nobody is told."""
        self._time.alive = False
        self.disk.process_ended()

    def connect(self, listener: int = BROKER) -> FuzzedConnection:
        self._connections += 1
        info = ConnectionInfo(self._connections, LISTENER_NAMES[listener], "127.0.0.1", 1000)
        return FuzzedConnection(self, self._network.servers[listener], info)


def node_properties() -> dict[str, str]:
    """Few partitions and short times, so that much happens soon."""
    return {
        "node.id": str(NODE_ID),
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://host-1:9092,CONTROLLER://host-1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@host-1:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": ",".join(LOG_DIRECTORIES),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.bytes": "1048576",
        "broker.heartbeat.interval.ms": "2000",
        "controller.quorum.election.timeout.ms": "100",
        "controller.quorum.election.backoff.max.ms": "50",
        "auto.create.topics.enable": "true",
    }
