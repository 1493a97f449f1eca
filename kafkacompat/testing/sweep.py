"""Runs a program that consumes, transforms and produces again and again, each time with one thing that goes wrong, and names the
first exchange after which a record is lost or doubled.

The program runs once without a fault. After each exchange that changes something, the state of the broker is kept. Then it runs
again, on a broker of its own each time:

- from each state that was kept, as after a crash of the program at that point: what the program knew is lost, sessions and
  transactions of its clients have timed out;
- from the beginning, with the connection closed before an exchange is applied, and after it is applied, when the reply is lost;
- from the beginning, with the members of all groups removed at an exchange, as when their sessions end;
- of a cluster, from the beginning, with a node that is cut off from the others when an exchange reaches it, and killed after that.

A program that raises is run again, as by a supervisor. One that hangs is left behind, and run again on a broker that it does not
reach. At the end the topics must have what they had without a fault.

Copies of this process carry the runs out (testing/copies.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.testing.copies import carried_out, processors
from kafkacompat.testing.faults import CHANGES
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.operations import Refused
from kafkacompat.testing.waiting import until
from kafkacompat.wire.apis import APIS

if TYPE_CHECKING:
    from kafkacompat.exchanges.exchange import Exchange
    from kafkacompat.testing.faults import Fault
    from kafkacompat.testing.kafka import Kafka, Snapshot

Program = Callable[["Kafka"], object]
Outcome = Counter[tuple[str, bytes | None, bytes | None]]
"""How often each topic, key and value is there."""

WORKERS, WORKERS_WITH_CLUSTERS = 16, 4
"""Runs at once, in each process. They mostly wait for their clients. The nodes of clusters elect, and must have their turns."""
RUNS_MAX = 5
"""How often a program is run that raises."""
OPEN_S = 10.0
SETTLED_S = 5.0
"""How long what a cluster has acknowledged may take to be there on the node that leads now."""
CUT_OFF_MS, LEFT_ALONE_S = 200, 0.5
"""How long an exchange is held until its node is cut off, and how long that may then take to answer before it is killed."""
HEARTBEAT = "Heartbeat"
SILENT_S, SILENCES = 5.0, 3
"""A program hangs that asks for nothing for so long, and for so many times the longest silence of the run without a fault. A
member of a group that was removed learns so after 3 s by the defaults of clients."""
IDLE = frozenset({"Fetch", "ShareFetch", HEARTBEAT, "Metadata", "FindCoordinator", "PushTelemetry"})
"""What clients ask for by themselves while nothing goes on."""
LOOK_S = 0.05
SHOWN = 5
"""Records and exchanges of a report."""
REPEATED = frozenset({HEARTBEAT, "PushTelemetry"})
"""Sent as time goes by, and nothing is different after them. Members are removed after heartbeats too."""
HEARTBEATS_MAX = 20
GROUP_APIS = frozenset(
    {"JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "TxnOffsetCommit"}
)
CRASH, BEFORE, AFTER, EXPIRY, KILL = (
    "the program crashes after",
    "the connection closes before the broker has",
    "the reply is lost of",
    "the members of its groups are removed after",
    "the node is cut off from the others and killed that has carried out",
)


@dataclass(frozen=True, slots=True)
class Point:
    """An exchange of the run without a fault that changes something."""

    number: int
    """Counts from 1."""
    api: str
    nth: int
    """Of its API."""
    client_id: str | None

    def __str__(self) -> str:
        who = "" if self.client_id is None else f" of {self.client_id!r}"
        return f"exchange {self.number}, {self.api}{who} (the {_ordinal(self.nth)} one)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that went wrong, and what came of it."""

    what: str
    point: Point
    lost: Outcome
    doubled: Outcome
    error: str | None = None
    """Why the program did not end, however often it was run."""

    def __str__(self) -> str:
        lines = [f"When {self.what} {self.point}:"]
        lines += [f"  {count} lost: {_record(key)}" for key, count in self.lost.most_common(SHOWN)]
        lines += [f"  {count} too many: {_record(key)}" for key, count in self.doubled.most_common(SHOWN)]
        if self.error is not None:
            lines.append(f"  the program does not end: {self.error}")
        return "\n".join([*lines, *(f"  {line}" for line in self._advice())])

    def _advice(self) -> Sequence[str]:
        if self.what == CRASH and self.lost:
            return ["Offsets are committed before the work that they stand for is done."]
        if self.what == CRASH and self.doubled:
            return [
                "Records and the offsets that they come from are not committed together: send the offsets to the transaction",
                "(send_offsets_to_transaction), and read with isolation.level=read_committed what a transaction has written.",
            ]
        if self.what == KILL and self.lost:
            return [
                "It was acknowledged, and only one node had it: set acks=all, and min.insync.replicas=2.",
                "Or the failure of a send is not noticed: wait for its result.",
            ]
        if self.what in (AFTER, KILL) and self.doubled:
            return ["What is sent again is not recognized: set enable.idempotence, or use a transaction."]
        if self.what == BEFORE and self.lost:
            return [
                "The failure of a send is not noticed: wait for its result, or flush and look at the errors."
            ]
        if self.what == EXPIRY and (self.lost or self.doubled):
            return [
                "What is in hand when partitions are revoked is neither finished nor dropped: do so in the rebalance listener."
            ]
        return []


class FaultFound(AssertionError):
    """A program lost or doubled records. `findings` are in the order of exchanges, those of members that were removed last."""

    def __init__(self, findings: Sequence[Finding], points: Sequence[Point]) -> None:
        self.findings = tuple(findings)
        first = self.findings[0]
        around = points[max(0, first.point.number - SHOWN) : first.point.number]
        told = [str(first), "The exchanges until then:", *(f"  {point}" for point in around)]
        if len(self.findings) > 1:
            told.append(f"{len(self.findings) - 1} more:")
            told += [f"  {each.what} {each.point}" for each in self.findings[1:]]
        super().__init__("\n".join(told))


class Hangs(TimeoutError):
    """A program has not ended in time."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A program that has passed."""

    points: tuple[Point, ...]
    runs: int
    """With a fault."""


class _Watcher:
    """Keeps what changes something, and the state after each. Called in the threads of nodes."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.points: list[Point] = []
        self.heartbeats: list[Point] = []
        self.states: list[Snapshot] = []
        self.error: Exception | None = None

    def __call__(self, exchange: Exchange) -> None:
        api = APIS[exchange.api_key].name
        if api not in CHANGES or exchange.listener not in self._kafka.client_listeners:
            return
        with self._lock:
            self._counts[api] += 1
            point = Point(len(self.points) + (api != HEARTBEAT), api, self._counts[api], exchange.client_id)
            if api == HEARTBEAT and len(self.heartbeats) < HEARTBEATS_MAX:
                self.heartbeats.append(point)
        if api in REPEATED:
            return
        try:
            state = self._kafka.snapshot_in_loop(exchange.node)
        except Exception as error:
            self.error = error
            raise
        with self._lock:
            self.points.append(point)
            self.states.append(state)


class _Pulse:
    """How long a program asks for nothing. Called in the threads of nodes."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self.longest_s = 0.0

    def __call__(self, exchange: Exchange) -> None:
        if APIS[exchange.api_key].name not in IDLE:
            self.beat()

    def beat(self) -> None:
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._last_s


class _Reached:
    """Whether an exchange has happened. Called in the threads of nodes."""

    def __init__(self, kafka: Kafka, point: Point) -> None:
        self._listeners = kafka.client_listeners
        self._point = point
        self._count = 0
        self._lock = threading.Lock()
        self._event = threading.Event()
        self.wait = self._event.wait
        kafka.watch_requests(self)

    def __call__(self, exchange: Exchange) -> None:
        if APIS[exchange.api_key].name == self._point.api and exchange.listener in self._listeners:
            with self._lock:
                self._count += 1
                if self._count == self._point.nth:
                    self._event.set()


class _Meanwhile:
    """Does something beside a run, when it is time."""

    def __init__(self, is_time: Callable[[float], bool], do: Callable[[], None]) -> None:
        """`is_time` waits for at most so many seconds."""
        self._is_time = is_time
        self._do = do
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def _wait(self) -> None:
        while not self._over.is_set():
            if self._is_time(LOOK_S):
                self._do()
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class _Limits:
    timeout_s: float
    silence_s: float


class _Sweep:
    """What goes wrong, and what comes of it. Each fault has a Kafka of its own."""

    def __init__(
        self,
        program: Program,
        kafka: Kafka,
        start: Snapshot,
        before: Outcome,
        wanted: Outcome,
        limits: _Limits,
        sessions: timedelta,
        *,
        may_double: bool,
    ) -> None:
        self._program = program
        self._kafka = kafka
        self._start = start
        self._before = before
        self._wanted = wanted
        self._limits = limits
        self._sessions = sessions
        self._may_double = may_double

    def crash(self, point: Point, state: Snapshot) -> Finding | None:
        with self._kafka.fork(state) as other:
            other.clock.advance(self._sessions)
            return self._judged(CRASH, point, other)

    def close(self, point: Point, *, applied: bool) -> Finding | None:
        with self._kafka.fork(self._start) as other:
            for listener in other.client_listeners:
                other.faults.close(
                    applied=applied, api=point.api, nth=point.nth, listener=listener, optional=True
                )
            return self._judged(AFTER if applied else BEFORE, point, other)

    def expiry(self, point: Point) -> Finding | None:
        def remove(other: Kafka) -> None:
            with suppress(LookupError, Refused, NodeEnded):  # the program may have left, or have ended
                for group in other.groups():
                    other.expire_session(group)

        with self._kafka.fork(self._start) as other:
            reached = _Reached(other, point)
            return self._judged(EXPIRY, point, other, _Meanwhile(reached.wait, partial(remove, other)))

    def kill(self, point: Point) -> Finding | None:
        def kill(other: Kafka, reached: _Reached, held: Sequence[Fault]) -> None:
            node_id = next(each.node for each in held if each.node is not None)
            other.partition([node_id], other.nodes.keys() - {node_id})
            reached.wait(LEFT_ALONE_S)
            other.kill_node(node_id)
            session_ms = other.node.config.get_int("broker.session.timeout.ms")
            other.clock.advance(timedelta(milliseconds=session_ms + 1000))  # so that the others lead at once

        with self._kafka.fork(self._start) as other:
            reached = _Reached(other, point)
            held = [
                other.faults.delay(CUT_OFF_MS, api=point.api, nth=point.nth, listener=listener, optional=True)
                for listener in other.client_listeners
            ]

            def is_held(timeout_s: float) -> bool:
                with suppress(TimeoutError):
                    held[0].wait(timeout=timeout_s)
                return any(each.node is not None for each in held)

            return self._judged(KILL, point, other, _Meanwhile(is_held, partial(kill, other, reached, held)))

    def _judged(
        self,
        what: str,
        point: Point,
        other: Kafka,
        meanwhile: AbstractContextManager[object] | None = None,
        *,
        may_hang: bool = True,
    ) -> Finding | None:
        try:
            with meanwhile or nullcontext():
                error = _run_until_it_ends(self._program, other, self._limits, self._sessions)
        except Hangs as late:
            if may_hang:
                with other.fork() as again:  # which the run that hangs does not reach
                    again.clock.advance(self._sessions)
                    return self._judged(what, point, again, may_hang=False)
            error = str(late)
        end_s = time.monotonic() + (SETTLED_S if len(other.nodes) > 1 else 0)
        while (self._wanted - (found := outcome_of(other) - self._before)) and time.monotonic() < end_s:
            time.sleep(0.05)
        doubled: Outcome = Counter() if self._may_double else found - self._wanted
        finding = Finding(what, point, self._wanted - found, doubled, error)
        return finding if error is not None or finding.lost or finding.doubled else None


def every_fault(
    program: Program,
    kafka: Kafka,
    *,
    may_double: bool = False,
    timeout_s: float = 30.0,
    sessions: timedelta = timedelta(seconds=80),
    processes: int | None = None,
) -> Swept:
    """Run `program` with one fault at each exchange in turn.

    `program` gets a Kafka, makes its own clients, does all its work and returns. `kafka` has what the work needs, such as the
    topics and the records to consume. It is left as it was. `may_double`: only lost records count, for programs that promise
    at-least-once. `sessions`: after this time the sessions and transactions of a program that has crashed are over. `processes`:
    how many copies of this process carry the runs out, by default one for each processor. With 1 they happen in this process.

    Raises FaultFound. What the program raises without a fault is raised."""
    if kafka.pid != os.getpid():
        raise ValueError("a sweep needs a Kafka in the process of the tests")
    start = kafka.snapshot()
    before = outcome_of(kafka)
    with kafka.fork(start) as first:
        watcher, pulse = _Watcher(first), _Pulse()
        first.watch_requests(watcher)
        first.watch_requests(pulse)
        _run_once(program, first, _Limits(timeout_s, timeout_s))
        pulse.beat()
        if watcher.error is not None:
            raise watcher.error
        wanted = outcome_of(first) - before
        points, states = tuple(watcher.points), tuple(watcher.states)
    limits = _Limits(timeout_s, max(SILENT_S, SILENCES * pulse.longest_s))
    swept = _Sweep(program, kafka, start, before, wanted, limits, sessions, may_double=may_double)
    jobs: list[Callable[[], Finding | None]] = []
    for point, state in zip(points, states, strict=True):
        jobs += (
            partial(swept.close, point, applied=False),
            partial(swept.close, point, applied=True),
            partial(swept.crash, point, state),
        )
    if any(point.api in GROUP_APIS for point in points):
        jobs += [partial(swept.expiry, point) for point in (*points, *watcher.heartbeats)]
    if len(kafka.nodes) > 1:
        jobs += [partial(swept.kill, point) for point in points]
    try:
        threads = WORKERS if len(kafka.nodes) == 1 else WORKERS_WITH_CLUSTERS
        found = carried_out(jobs, processes=processes or processors(), threads=threads)
    finally:
        for snapshot in (start, *states):
            snapshot.close()
    findings = [each for each in found if each is not None]
    if findings:
        findings.sort(key=lambda each: (each.what in (EXPIRY, KILL), each.point.number))
        raise FaultFound(findings, points)
    return Swept(points, len(jobs))


def outcome_of(kafka: Kafka) -> Outcome:
    """What a consumer of committed records would see of all topics, without Kafka's own."""
    if len(kafka.nodes) > 1:
        until(partial(_all_led, kafka), OPEN_S, lambda: "partitions have no leader")
    end_s = time.monotonic() + OPEN_S
    while True:
        records = [each for topic in kafka.topics() for each in kafka.records(topic)]
        if not any(each.transaction == "open" for each in records) or time.monotonic() > end_s:
            return Counter(
                (each.topic, each.key, each.value)
                for each in records
                if each.transaction in (None, "committed")
            )
        time.sleep(0.01)


def _all_led(kafka: Kafka) -> bool:
    running = [node_id for node_id, node in kafka.nodes.items() if node.is_running]
    return all(
        any(kafka.leads(node_id, topic, index) for node_id in running)
        for topic, count in kafka.topics().items()
        for index in range(count)
    )


def _run_once(program: Program, kafka: Kafka, limits: _Limits) -> None:
    """Raises what the program raises, Hangs."""
    raised: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            program(kafka)
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    pulse = _Pulse()
    kafka.watch_requests(pulse)
    threading.Thread(target=run, daemon=True).start()
    end_s = time.monotonic() + limits.timeout_s
    while True:
        left_s = min(end_s - time.monotonic(), limits.silence_s - pulse.silent_s)
        if ended.wait(max(0.0, left_s)):
            break
        if time.monotonic() >= end_s:
            raise Hangs(f"it has not ended after {limits.timeout_s:g} s")
        if pulse.silent_s >= limits.silence_s:
            raise Hangs(f"it has not ended, and has asked for nothing for {limits.silence_s:.1f} s")
    if raised:
        raise raised[0]


def _run_until_it_ends(program: Program, kafka: Kafka, limits: _Limits, sessions: timedelta) -> str | None:
    """None when it has ended, otherwise why it does not. Raises Hangs."""
    for run in range(1, RUNS_MAX + 1):
        try:
            _run_once(program, kafka, limits)
        except Hangs:
            raise
        except Exception as error:
            if run == RUNS_MAX:
                return f"{type(error).__name__}: {error}"
            kafka.clock.advance(sessions)
        else:
            return None
    return None


def _record(key: tuple[str, bytes | None, bytes | None]) -> str:
    topic, record_key, value = key
    named = "" if record_key is None else f" with key {record_key!r}"
    return f"{value!r}{named} in {topic}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
