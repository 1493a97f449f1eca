"""Runs a program that consumes, transforms and produces again and again, each time with one thing that goes wrong, and names the
first exchange after which a record is lost or doubled.

The program runs once without a fault. After each exchange that changes something, the state of the broker is kept. Then it runs
again, on a broker of its own each time:

- from each state that was kept, as after a crash of the program at that point: what the program knew is lost, sessions and
  transactions of its clients have timed out;
- from the beginning, with the connection closed before an exchange is applied, and after it is applied, when the reply is lost;
- from the beginning, with the members of all groups removed at an exchange, as when their sessions end.

A program that raises is run again, as by a supervisor. One that hangs is left behind, and run again on a broker that it does not
reach. At the end the topics must have what they had without a fault.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.testing.faults import CHANGES
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.operations import Refused
from kafkacompat.wire.apis import APIS

if TYPE_CHECKING:
    from kafkacompat.exchanges.exchange import Exchange
    from kafkacompat.testing.kafka import Kafka, Snapshot

Program = Callable[["Kafka"], object]
Outcome = Counter[tuple[str, bytes | None, bytes | None]]
"""How often each topic, key and value is there."""

WORKERS = 6
"""Runs at once. They mostly wait for their clients."""
RUNS_MAX = 5
"""How often a program is run that raises."""
OPEN_S = 10.0
SHOWN = 5
"""Records and exchanges of a report."""
HEARTBEAT = "Heartbeat"
REPEATED = frozenset({HEARTBEAT, "PushTelemetry"})
"""Sent as time goes by, and nothing is different after them. Members are removed after heartbeats too."""
HEARTBEATS_MAX = 20
GROUP_APIS = frozenset(
    {"JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "TxnOffsetCommit"}
)
CRASH, BEFORE, AFTER, EXPIRY = (
    "the program crashes after",
    "the connection closes before the broker has",
    "the reply is lost of",
    "the members of its groups are removed after",
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
        if self.what == AFTER and self.doubled:
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
    """Keeps what changes something, and the state after each. Called in the node's thread."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._counts: Counter[str] = Counter()
        self.points: list[Point] = []
        self.heartbeats: list[Point] = []
        self.states: list[Snapshot] = []

    def __call__(self, exchange: Exchange) -> None:
        api = APIS[exchange.api_key].name
        if api not in CHANGES:
            return
        self._counts[api] += 1
        if api == HEARTBEAT and len(self.heartbeats) < HEARTBEATS_MAX:
            self.heartbeats.append(Point(len(self.points), api, self._counts[api], exchange.client_id))
        if api in REPEATED:
            return
        self.points.append(Point(len(self.points) + 1, api, self._counts[api], exchange.client_id))
        self.states.append(self._kafka.snapshot_in_loop())


def every_fault(
    program: Program,
    kafka: Kafka,
    *,
    may_double: bool = False,
    timeout_s: float = 30.0,
    sessions: timedelta = timedelta(seconds=80),
) -> Swept:
    """Run `program` with one fault at each exchange in turn.

    `program` gets a Kafka, makes its own clients, does all its work and returns. `kafka` has one node and what the work needs, such
    as the topics and the records to consume. It is left as it was. `may_double`: only lost records count, for programs that
    promise at-least-once. `sessions`: after this time the sessions and transactions of a program that has crashed are over.

    Raises FaultFound. What the program raises without a fault is raised."""
    if len(kafka.nodes) != 1:
        raise ValueError("a sweep needs a Kafka of one node")
    if kafka.pid != os.getpid():
        raise ValueError("a sweep needs a Kafka in the process of the tests")
    start = kafka.snapshot()
    before = outcome_of(kafka)
    with kafka.fork(start) as first:
        watcher = _Watcher(first)
        first.watch_requests(watcher)
        _run_once(program, first, timeout_s)
        wanted = outcome_of(first) - before
        points = tuple(watcher.points)
        states = tuple(watcher.states)

    def judged(what: str, point: Point, other: Kafka, *, may_hang: bool = True) -> Finding | None:
        try:
            error = _run_until_it_ends(program, other, timeout_s, sessions)
        except Hangs as late:
            if may_hang:
                with other.fork() as again:  # which the run that hangs does not reach
                    again.clock.advance(sessions)
                    return judged(what, point, again, may_hang=False)
            error = str(late)
        found = outcome_of(other) - before
        doubled = Counter() if may_double else found - wanted
        finding = Finding(what, point, wanted - found, doubled, error)
        return finding if error is not None or finding.lost or finding.doubled else None

    def crash(point: Point, state: Snapshot) -> Finding | None:
        with kafka.fork(state) as other:
            other.clock.advance(sessions)
            return judged(CRASH, point, other)

    def close(point: Point, *, applied: bool) -> Finding | None:
        with kafka.fork(start) as other:
            other.faults.close(applied=applied, api=point.api, nth=point.nth, optional=True)
            return judged(AFTER if applied else BEFORE, point, other)

    def expiry(point: Point) -> Finding | None:
        with kafka.fork(start) as other:
            reached, over = threading.Event(), threading.Event()
            counts: Counter[str] = Counter()

            def watch(exchange: Exchange) -> None:
                api = APIS[exchange.api_key].name
                counts[api] += 1
                if api == point.api and counts[api] == point.nth:
                    reached.set()

            def remove() -> None:
                while not over.is_set():
                    if reached.wait(0.05):
                        with suppress(
                            LookupError, Refused, NodeEnded
                        ):  # the program may have left, or have ended
                            for group in other.groups():
                                other.expire_session(group)
                        return

            other.watch_requests(watch)
            remover = threading.Thread(target=remove, daemon=True)
            remover.start()
            try:
                return judged(EXPIRY, point, other)
            finally:
                over.set()
                remover.join()

    jobs: list[Callable[[], Finding | None]] = []
    for point, state in zip(points, states, strict=True):
        jobs += (
            partial(close, point, applied=False),
            partial(close, point, applied=True),
            partial(crash, point, state),
        )
    if any(point.api in GROUP_APIS for point in points):
        jobs += [partial(expiry, point) for point in (*points, *watcher.heartbeats)]
    try:
        with ThreadPoolExecutor(WORKERS) as threads:
            findings = [each for each in threads.map(lambda job: job(), jobs) if each is not None]
    finally:
        for snapshot in (start, *states):
            snapshot.close()
    if findings:
        findings.sort(key=lambda each: (each.what == EXPIRY, each.point.number))
        raise FaultFound(findings, points)
    return Swept(points, len(jobs))


def outcome_of(kafka: Kafka) -> Outcome:
    """What a consumer of committed records would see of all topics, without Kafka's own."""
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


def _run_once(program: Program, kafka: Kafka, timeout_s: float) -> None:
    """Raises what the program raises, Hangs."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            program(kafka)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise Hangs(f"it has not ended after {timeout_s:g} s")
    if raised:
        raise raised[0]


def _run_until_it_ends(program: Program, kafka: Kafka, timeout_s: float, sessions: timedelta) -> str | None:
    """None when it has ended, otherwise why it does not. Raises Hangs."""
    for run in range(1, RUNS_MAX + 1):
        try:
            _run_once(program, kafka, timeout_s)
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
