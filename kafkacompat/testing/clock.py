"""The clock of a test: real time, until the test stops it or moves it.

Two times differ while it stands. The node's time (`TestClock` itself, `NodeTime.timers`) stands: timestamps, sessions,
rebalances, timeouts of transactions, delivery locks, retention, quotas. The time of the node's own work (`TestClock.work`,
`NodeTime.work_timers`) goes on: requests that wait, what is sent again, replication, the quorum. So nobody hangs because of a
clock that stands. `advance` moves both.

`advance` goes from timer to timer. It lets everything happen that follows from one, before it goes on to the next. For that
each node says when it is at rest (`NodeTime`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kafkacompat.dataclass import dataclass
from kafkacompat.net.job_queue import Waits
from kafkacompat.net.runtime import TrioTimers
from kafkacompat.net.workers import TERMS
from kafkacompat.ports import WorkerPools
from kafkacompat.testing.transit import Transit

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import PlacedWorkers, Workers

T = TypeVar("T")

EXACT_MS = 3_600_000
"""The first hour of an advance is exact. Beyond it the node's time goes ahead of the time of its work in `LEAPS` leaps, after each
of which the work catches up for a while: a week of heartbeats would take minutes."""
LEAPS = 24
LEAP_WORK_MS = 330_000
"""More than log.retention.check.interval.ms. After the last leap it is an hour, so that every sweep has its turn."""
GRAIN_MS = 100
"""While the clock is moved, timers of a node's work fire at multiples of this. So what nodes do again and again comes to happen at
the same times, and the clock stops there only. Each stop costs as much as all that nodes do there."""
REST_TIMEOUT_S = 60.0
"""How long a node may work at what has become due, in real time."""
ASTRAY_S = 2.0
"""After this real time without any other work, requests between nodes that did not arrive count as lost: a network is cut."""
QUIET_TURNS = 2
"""Turns of a loop in which nothing runs, after which it is at rest. Each looks at the sockets."""
BUSY_TURNS_MAX = 2_000
"""Turns without a job, a due timer or a request between nodes after which a loop counts as at rest: clients go on sending."""
BUSY_LOOKS_MAX = 30
"""The same for nodes that were all at rest so often, each at its own moment."""
WITHOUT_REST = frozenset(duty for duty, terms in TERMS.items() if terms.waits is Waits.NETWORK)
ENTRY_QUEUE = "<TrioToken.run_sync_soon task>"


class NotAtRest(Exception):
    """A node still works at what has become due. The text says at what."""


class Time:
    """ports.Clock, of the node's own work."""

    __slots__ = ("_clock",)

    def __init__(self, clock: TestClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._clock.work_ms()


class TestClock:
    """ports.Clock. Nodes may share it (`NodeTime`). Its methods are for any thread but those of the nodes."""

    __test__ = False

    def __init__(self) -> None:
        self.work = Time(self)
        """For `NodeServices.work_clock`."""
        self._lock = threading.Lock()
        self._moving = threading.RLock()
        """One caller moves the clock at a time."""
        self._stands_ms: int | None = None
        """The node's monotonic time while it stands."""
        self._work_stands_ms: int | None = None
        """The same of its work, which stands only while the clock is moved."""
        self._ahead_ms = 0
        """Of real time, while it runs."""
        self._work_ahead_ms = 0
        self._wall_ms = time.time_ns() // 1_000_000 - _real_ms()
        """Wall time at the monotonic time 0."""
        self._nodes: list[NodeTime] = []
        self._lost = 0
        """Requests between the nodes that do not arrive."""

    def copy(self) -> TestClock:
        """Another clock that shows the same time, and stands if this one does."""
        other = TestClock()
        with self._moving:
            other.set_state(self.state())
        return other

    def state(self) -> tuple[Any, ...]:
        """For a clock that shows the same time in another process of this machine."""
        with self._lock:
            return self._stands_ms, self._ahead_ms, self._work_ahead_ms, self._wall_ms

    def set_state(self, state: tuple[Any, ...]) -> None:
        with self._lock:
            self._stands_ms, self._ahead_ms, self._work_ahead_ms, self._wall_ms = state

    # For nodes.

    def monotonic_ms(self) -> int:
        with self._lock:
            return _real_ms() + self._ahead_ms if self._stands_ms is None else self._stands_ms

    def monotonic_s(self) -> float:
        """The same, as finely as the machine tells it."""
        with self._lock:
            if self._stands_ms is not None:
                return self._stands_ms / 1000
            return time.monotonic() + self._ahead_ms / 1000

    def work_ms(self) -> int:
        with self._lock:
            return _real_ms() + self._work_ahead_ms if self._work_stands_ms is None else self._work_stands_ms

    def now_ms(self) -> int:
        return self.monotonic_ms() + self._wall_ms

    def joined(self, node: NodeTime) -> None:
        self._nodes.append(node)

    def left(self, node: NodeTime) -> None:
        self._nodes.remove(node)

    # For tests.

    @property
    def is_frozen(self) -> bool:
        return self._stands_ms is not None

    def now(self) -> datetime:
        """The nodes' wall time."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def freeze(self) -> None:
        """Stop the nodes' time. What was due has happened when this returns."""
        with self._moving:
            if self._stands_ms is None:
                self._stand()
                self._settle()

    def resume(self) -> None:
        """Let time go on from where it stands."""
        with self._moving:
            if self._stands_ms is not None:
                self._run_on(is_running=True)

    def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        """Move time on, by a timedelta, by seconds, or by `hours=2, minutes=10` as in a timedelta. Every timer in between fires at
        its own time. When this returns, what was due has happened in order and is committed. A clock that stands stands again.

        Raises NotAtRest."""
        span = by if isinstance(by, timedelta) else timedelta(seconds=by or 0)
        self._advance_ms(round((span + timedelta(**parts)) / timedelta(milliseconds=1)))

    def at(self, moment: datetime | int) -> None:
        """Freeze the clock at a time: a datetime, or milliseconds since 1970. A later time is reached as by `advance`. An earlier
        one sets only the wall clock back, as an administrator does: no timeout changes by it."""
        wanted_ms = moment if isinstance(moment, int) else round(moment.timestamp() * 1000)
        with self._moving:
            self.freeze()
            by_ms = wanted_ms - self.now_ms()
            if by_ms < 0:
                self._wall_ms += by_ms
            else:
                self._advance_ms(by_ms)

    def settle(self) -> None:
        """Wait until the nodes are at rest, without moving time: what a test has caused in a node is then done."""
        with self._moving:
            self._settle()

    # Moving.

    def _advance_ms(self, by_ms: int) -> None:
        if by_ms < 0:
            raise ValueError("time goes only forwards; `at` sets the wall clock back")
        with self._moving:
            was_running = self._stands_ms is None
            if was_running:
                self._stand()
            try:
                with self._lock:
                    self._work_stands_ms = _real_ms() + self._work_ahead_ms
                self._step_through(by_ms)
            finally:
                self._run_on(is_running=was_running)

    def _step_through(self, by_ms: int) -> None:
        self._settle()
        exact_ms = min(by_ms, EXACT_MS)
        self._move(exact_ms, exact_ms)
        left_ms = by_ms - exact_ms
        for left in range(LEAPS if left_ms else 0, 0, -1):
            leap_ms = left_ms // left
            left_ms -= leap_ms
            self._move(leap_ms, 0)
            self._move(0, min(leap_ms, LEAP_WORK_MS if left > 1 else EXACT_MS))

    def _move(self, by_ms: int, work_ms: int) -> None:
        """From timer to timer: both times together, or one of them."""
        left = [by_ms or work_ms]

        def step() -> bool:
            """Go to the next timer, or to the end. Returns False if the end was reached before, or the move was interrupted."""
            if left[0] <= 0:
                return False
            due = [due for node in self._awake() for due in node.due_in_ms(bool(by_ms), bool(work_ms))]
            step_ms = max(min([left[0], *due]), 0)
            left[0] -= step_ms
            with self._lock:
                if self._stands_ms is None or self._work_stands_ms is None:
                    return False
                self._stands_ms += step_ms if by_ms else 0
                self._work_stands_ms += step_ms if work_ms else 0
            return True

        if len(self._awake()) == 1:
            self._settle(step)  # in the node's own loop, which is much quicker
        while step():
            self._settle()

    def _stand(self) -> None:
        with self._lock:
            self._stands_ms = _real_ms() + self._ahead_ms

    def _run_on(self, *, is_running: bool) -> None:
        """After a move: the work goes on, and the node's time too, if it did so before."""
        with self._lock:
            if self._work_stands_ms is not None:
                self._work_ahead_ms = self._work_stands_ms - _real_ms()
                self._work_stands_ms = None
            if is_running and self._stands_ms is not None:
                self._ahead_ms = self._stands_ms - _real_ms()
                self._stands_ms = None
        for node in list(self._nodes):
            node.look_again()

    def _settle(self, step: Callable[[], bool] | None = None) -> None:
        """Wait until no node has anything to do at the present time. `step`: what the only node does then, to go on, until it
        returns False."""
        quiet_since_s: float | None = None
        before: Sequence[int] = ()
        for looks in itertools.count(1):
            nodes = self._awake()
            answers = [(node, node.look(step)) for node in nodes]
            try:
                self._wait_for(answers)
            except BaseException:  # of whoever interrupts a test too: its step would move a clock that runs
                for node, answer in answers:
                    if not answer.done():
                        node.look_no_more()
                raise
            turns = [-1 if node.is_busy else node.turns for node in nodes]
            is_same = nodes == self._awake() and (
                len(nodes) == 1 or turns == before or looks > BUSY_LOOKS_MAX
            )
            on_the_way = self._on_the_way()
            if is_same and on_the_way == self._lost:
                return
            before = turns
            if not is_same:
                quiet_since_s = None
            elif quiet_since_s is None:
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > ASTRAY_S:
                self._lost = on_the_way

    def _awake(self) -> list[NodeTime]:
        return [node for node in self._nodes if not node.stands_still]

    def _on_the_way(self) -> int:
        """How many requests and answers between the nodes have not arrived."""
        nodes = list(self._nodes)
        still = {address for node in nodes if node.stands_still for address in node.addresses}
        awaited = [
            count
            for node in nodes
            for address, count in list(node.transit.awaited.items())
            if address not in still
        ]
        return sum(awaited) - sum(node.transit.owed for node in nodes if not node.stands_still)

    def _wait_for(self, answers: list[tuple[NodeTime, Future[None]]]) -> None:
        while True:
            before = self._stands_ms, self._work_stands_ms
            wait_for_futures([answer for _, answer in answers], timeout=REST_TIMEOUT_S)
            late = [node for node, answer in answers if not answer.done() and node in self._nodes]
            if not late:
                return
            if (self._stands_ms, self._work_stands_ms) == before:
                told = "; ".join(node.busy_with() for node in late)
                raise NotAtRest(f"not at rest after {REST_TIMEOUT_S:g} s: {told}")


class NodeTime:
    """The time of one node: its timers, and what it needs to know whether the node is at rest. Make it and run it in the node's
    loop. `begin_life` before each node that runs there, one after another."""

    def __init__(
        self, clock: TestClock, name: str = "the node", addresses: Collection[tuple[str, int]] = ()
    ) -> None:
        """`addresses`: hosts and ports where it listens."""
        self.clock = clock
        self.addresses = addresses
        self.stands_still = False
        """Its loop does not go on, because a test pauses the node. The clock does not wait for it."""
        self.socket_timers = TrioTimers(clock.work)
        """Of connections, which stay when another node follows."""
        self.timers: TrioTimers
        self.work_timers: TrioTimers
        self.transit = Transit()
        self.turns = 0
        """Steps of tasks, while it was looked at."""
        self.is_busy = False
        """It counted as at rest, although tasks ran."""
        self._name = name
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: dict[str, int] = {}
        self._look: _Look | None = None
        self.begin_life()

    def begin_life(self) -> None:
        """Forget the timers and jobs of the node before."""
        self.timers = TrioTimers(self.clock)
        self.work_timers = TrioTimers(self.clock.work)
        self._jobs = {}

    async def live(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fire the node's timers until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.timers.run)
            await nursery.start(self.work_timers.run)
            task_status.started()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the clock until cancelled."""
        try:
            self.clock.joined(self)
            await self.socket_timers.run(task_status)
        finally:
            self.clock.left(self)
            if self._look is not None:
                self._look.end()

    def counted(self, workers: WorkerPools) -> WorkerPools:
        """The same workers, of the present node. It is at rest when their jobs are done."""
        pools: dict[str, Any] = {}
        for each in fields(WorkerPools):
            pool = getattr(workers, each.name)
            if each.name == "log_sync":
                pools[each.name] = _CountedPlaces(pool, _Duty(self, self._jobs, each.name))
            elif each.name in WITHOUT_REST:
                pools[each.name] = pool
            else:
                pools[each.name] = _CountedWorkers(pool, _Duty(self, self._jobs, each.name))
        return WorkerPools(**pools)

    # From the thread that moves the clock.

    def look_again(self) -> None:
        self.soon(self.wake_timers)

    def look(self, step: Callable[[], bool] | None = None) -> Future[None]:
        """Done when the node is at rest, or has ended. `step`: called when it is at rest, to go on, until it returns False."""
        look = _Look(self, step)
        self._look = look
        if not self.soon(look.begin):
            look.end()
        return look.at_rest

    def look_no_more(self) -> None:
        """The present look is given up: its step is not called any more."""
        look, self._look = self._look, None
        if look is not None:
            look.is_given_up = True
            self.soon(look.leave)

    def busy_with(self) -> str:
        jobs = ", ".join(f"{count} of {duty}" for duty, count in sorted(self._jobs.items()) if count)
        return (
            f"{self._name} has jobs in threads ({jobs})"
            if jobs
            else f"the loop of {self._name} does not rest"
        )

    # In the node's loop.

    def wake_timers(self) -> None:
        for each in (self.timers, self.work_timers, self.socket_timers):
            each.look_again()

    def jobs_ended(self) -> None:
        if self._look is not None and not self.has_jobs():
            self._look.go_on()

    def has_jobs(self) -> bool:
        return any(self._jobs.values())

    def soon(self, call: Callable[[], None]) -> bool:
        """Call it in the node's loop. Returns False if that has ended."""
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return False
        return True

    def due_in_ms(self, timers: bool = True, work_timers: bool = True) -> list[int]:
        """When the next timers are due. Only in the loop, or while that is at rest and the clock stands."""
        found: list[int] = []
        if timers and (due_ms := self.timers.next_ms()) is not None:
            found.append(due_ms - self.clock.monotonic_ms())
        if work_timers:
            now_ms = self.clock.work_ms()
            for each in (self.work_timers, self.socket_timers):
                due_ms = each.next_ms()
                if due_ms is not None:
                    found.append(
                        due_ms - now_ms if due_ms <= now_ms else -(-due_ms // GRAIN_MS) * GRAIN_MS - now_ms
                    )
        return found

    def is_due(self) -> bool:
        return any(due_ms <= 0 for due_ms in self.due_in_ms())


class _Look(trio.abc.Instrument):
    """Waits until a loop is at rest: no job runs, no timer is due, and no task has run in two turns, each of which looked at the
    sockets."""

    def __init__(self, node: NodeTime, step: Callable[[], bool] | None) -> None:
        self.at_rest: Future[None] = Future()
        self._node = node
        self._step = step
        self._turns = -1
        """Of the node, at the last turn here."""
        self._quiet_turns = 0
        self._idle_turns = 0
        self._waits_for_jobs = False
        self.is_given_up = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name != ENTRY_QUEUE:
            self._node.turns += 1

    def begin(self) -> None:
        trio.lowlevel.add_instrument(self)
        self._turn()

    def leave(self) -> None:
        with suppress(KeyError):  # it came to its end as it was given up
            trio.lowlevel.remove_instrument(self)

    def go_on(self) -> None:
        """No job runs any more."""
        if self._waits_for_jobs:
            self._waits_for_jobs = False
            self._node.soon(self._turn)

    def _turn(self) -> None:
        if self.at_rest.done() or self.is_given_up:
            return
        node = self._node
        is_due = node.is_due()
        if is_due:
            node.wake_timers()
        self._waits_for_jobs = node.has_jobs()
        is_idle = not is_due and not self._waits_for_jobs
        self._idle_turns = self._idle_turns + 1 if is_idle else 0
        self._quiet_turns = self._quiet_turns + 1 if is_idle and node.turns == self._turns else 0
        self._turns = node.turns
        if self._quiet_turns >= QUIET_TURNS or self._idle_turns >= BUSY_TURNS_MAX:
            if self._step is None or not self._step():
                node.is_busy = self._quiet_turns < QUIET_TURNS
                self.leave()
                self.end()
                return
            self._quiet_turns = self._idle_turns = 0
            node.soon(self._turn)
        elif not self._waits_for_jobs:
            node.soon(self._turn)

    def end(self) -> None:
        if not self.at_rest.done():
            self.at_rest.set_result(None)


@dataclass(frozen=True, slots=True)
class _Duty:
    """Counts the jobs of one duty of one node."""

    node: NodeTime
    jobs: dict[str, int]
    name: str

    def begins(self) -> None:
        self.jobs[self.name] = self.jobs.get(self.name, 0) + 1

    def ends(self, _: object) -> None:
        self.jobs[self.name] -= 1
        self.node.jobs_ended()


@dataclass(frozen=True, slots=True)
class _CountedWorkers:
    inner: Workers
    duty: _Duty

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        answer = self.inner.submit(function)
        if not answer.done:
            self.duty.begins()
            answer.on_done(self.duty.ends)  # before whoever wants the value, so in the same step
        return answer


class _CountedPlaces:
    def __init__(self, inner: PlacedWorkers, duty: _Duty) -> None:
        self._inner = inner
        self._duty = duty
        self._pools: dict[str, _CountedWorkers] = {}

    def at(self, place: str) -> Workers:
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = _CountedWorkers(self._inner.at(place), self._duty)
        return pool


def _real_ms() -> int:
    return time.monotonic_ns() // 1_000_000
