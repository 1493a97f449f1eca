"""The real clock, random numbers and timers of the ports, on trio.

One heap and one task serve all timers. If nothing is due, nothing wakes.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import resource
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import Uuid, is_reserved_uuid, uuid_to_text
from kafkacompat.ports import Clock

CANCELLED_TIMERS_KEPT = 256
"""Cancelled timers stay in the heap until there are more than this many, and they are more than half of it."""
FIRING_S = 0.001
"""How long timers that are due together fire in a row before others get their turn."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class TrioClock:
    """The loop's own clock, which a test's MockClock controls. Only inside trio."""

    __slots__ = ("_started_ms",)

    def __init__(self, started_ms: int) -> None:
        """`started_ms` is the wall time at the loop's time 0."""
        self._started_ms = started_ms

    def now_ms(self) -> int:
        return self._started_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000)


class SystemRandom:
    __slots__ = ()

    def uuid(self) -> Uuid:
        while True:
            uuid = bytearray(os.urandom(16))
            # The version and variant bits of RFC 4122, as in java.util.UUID.randomUUID.
            uuid[6] = uuid[6] & 0x0F | 0x40
            uuid[8] = uuid[8] & 0x3F | 0x80
            result = bytes(uuid)
            if not is_reserved_uuid(result) and not uuid_to_text(result).startswith("-"):
                return result

    def randrange(self, stop: int) -> int:
        """Uniform in [0, stop). Raises ValueError unless stop is positive."""
        if stop <= 0:
            raise ValueError(f"{stop} is not positive")
        bits = stop.bit_length()
        size = (bits + 7) // 8
        while True:
            value = int.from_bytes(os.urandom(size), "big") >> (size * 8 - bits)
            if value < stop:
                return value


class Timer:
    """A planned call. `cancel` and `postpone` may be called at any time."""

    __slots__ = ("_timers", "callback", "deadline_ms", "order", "place_ms")

    def __init__(
        self, timers: TrioTimers, deadline_ms: int, order: int, callback: Callable[[], None]
    ) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self.place_ms = deadline_ms
        """The deadline that its place in the heap belongs to. It is earlier than that of a postponed timer."""
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.forget_one()

    def postpone(self, monotonic_ms: int) -> None:
        self.deadline_ms = monotonic_ms

    @property
    def entry(self) -> tuple[int, int, Timer]:
        """In the heap. Tuples of numbers are compared without a call of Python. No two timers have the same `order`."""
        return self.place_ms, self.order, self


class TrioTimers:
    """Timers in order of deadline, then of creation. They fire while `run` runs.

    Whoever waits in the loop's place fires them itself (`lend`), without a turn of the loop.

    A postponed timer keeps its place in the heap until it is the first one. Most timers guard something that a client
    prolongs again and again, so each time the loop wakes for a timer, all postponed ones at the front get their new
    places: it does not wake for each of them.

    A callback that raises has a bug: the exception is passed to `on_error` and the other timers continue.
    """

    def __init__(self, clock: Clock, on_error: Callable[[Exception], None] | None = None) -> None:
        self._clock = clock
        self._on_error = on_error or _log_timer_error
        self._heap: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._order = 0
        self._sleep: trio.CancelScope | None = None
        """The task's sleep. Its deadline moves when an earlier timer is set."""
        self._due: deque[Timer] = deque()
        """Taken out of the heap, and not fired yet."""
        self._on_move: Callable[[], None] | None = None
        """Set while they are lent."""

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Timer:
        self._order += 1
        timer = Timer(self, monotonic_ms, self._order, callback)
        heapq.heappush(self._heap, (monotonic_ms, self._order, timer))
        if self._sleep is not None and self._heap[0][2] is timer:
            if self._on_move is not None:
                self._on_move()
            else:
                self._sleep.deadline = self._loop_instant(monotonic_ms)
        return timer

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._clock.monotonic_ms() + delay_ms, callback)

    def forget_one(self) -> None:
        """A timer was cancelled (Timer.cancel)."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_TIMERS_KEPT and self._cancelled * 2 > len(self._heap):
            kept = [entry for entry in self._heap if entry[2].callback is not None]
            self._cancelled -= len(self._heap) - len(kept)
            heapq.heapify(kept)
            self._heap = kept

    def next_ms(self) -> int | None:
        """When the next timer is due. None: there is none."""
        while self._heap:
            if not self._set_first_right():
                return self._heap[0][2].deadline_ms
        return None

    def _set_first_right(self) -> bool:
        """Remove the first timer of the heap if it is cancelled, and move it if it is postponed. False: it is neither."""
        first = self._heap[0][2]
        if first.callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        elif first.deadline_ms > first.place_ms:
            first.place_ms = first.deadline_ms
            heapq.heapreplace(self._heap, first.entry)
        else:
            return False
        return True

    def look_again(self) -> None:
        """The clock was set: what is due may be due at another time of the loop."""
        if self._sleep is not None:
            next_ms = self.next_ms()
            is_due = next_ms is not None and next_ms <= self._clock.monotonic_ms()
            if self._on_move is not None:
                self._on_move()
            else:
                self._sleep.deadline = trio.current_time() if is_due else self._next_instant()

    def lend(self, on_move: Callable[[], None]) -> None:
        """Let the caller fire them: it asks `next_s`, anew whenever it is told, and calls `fire`. Ended by `take_back`."""
        self._on_move = on_move
        if self._sleep is not None:
            self._sleep.deadline = math.inf

    def take_back(self) -> None:
        self._on_move = None
        if self._sleep is not None:
            self._sleep.deadline = self._next_instant()

    def next_s(self) -> float:
        """When something is due, by time.monotonic. It may be for a timer that was cancelled or postponed. Infinite: never, or
        `run` does not run."""
        if self._sleep is None:
            return math.inf
        return monotonic() + self._left_s()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fire timers until cancelled."""
        task_status.started()
        while True:
            with trio.CancelScope() as scope:
                self._sleep = scope
                try:
                    if self._on_move is None:
                        scope.deadline = self._next_instant()
                    else:
                        self._on_move()
                    await trio.sleep_forever()
                finally:
                    self._sleep = None
            while self.fire():
                await trio.lowlevel.checkpoint()

    def fire(self) -> bool:
        """Fire what is due, for FIRING_S. Whether some of it is left, which may wait until others had their turn."""
        # Taken out first: a callback that sets a timer for now must not delay others.
        due = self._due
        if not due:
            due.extend(self._take_due())
        until_s = monotonic() + FIRING_S
        while due:
            timer = due.popleft()
            if timer.callback is not None and timer.deadline_ms > timer.place_ms:
                self._put_back(timer)  # postponed by an earlier callback, after it was taken from the heap
                continue
            callback, timer.callback = timer.callback, None
            if callback is None:  # cancelled by one
                self._cancelled -= 1
                continue
            try:
                callback()
            except Exception as error:
                self._on_error(error)
            if monotonic() >= until_s:
                break
        return bool(due)

    def _take_due(self) -> list[Timer]:
        """Remove what is due from the heap, as far as time allows, and let a timer come first that is neither cancelled
        nor postponed."""
        heap, now_ms, until_s = self._heap, self._clock.monotonic_ms(), monotonic() + FIRING_S
        due: list[Timer] = []
        while heap and monotonic() < until_s:
            if self._set_first_right():
                continue
            if heap[0][2].deadline_ms > now_ms:
                break
            due.append(heapq.heappop(heap)[2])
        return due

    def _put_back(self, timer: Timer) -> None:
        timer.place_ms = timer.deadline_ms
        heapq.heappush(self._heap, timer.entry)

    def _next_instant(self) -> float:
        return trio.current_time() + self._left_s()

    def _left_s(self) -> float:
        """Until something is due."""
        if self._due:
            return 0.0
        return self._left_until_s(self._heap[0][0]) if self._heap else math.inf

    def _loop_instant(self, monotonic_ms: int) -> float:
        return trio.current_time() + self._left_until_s(monotonic_ms)

    def _left_until_s(self, monotonic_ms: int) -> float:
        # Half a millisecond late, because the clock truncates fractions: never early, and not woken twice.
        return (monotonic_ms - self._clock.monotonic_ms() + 0.5) / 1000


async def wait_for(deferred: Deferred[T]) -> T:
    """Wait for a deferred's value. Raises its failure. Cancelling ends only the wait, not the work."""
    if deferred.done:
        await trio.lowlevel.checkpoint()
        return deferred.result()
    waiting: list[trio.lowlevel.Task] = [trio.lowlevel.current_task()]

    def wake(_done: Deferred[T]) -> None:
        if waiting:
            trio.lowlevel.reschedule(waiting.pop())

    def give_up(_raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        waiting.clear()
        return trio.lowlevel.Abort.SUCCEEDED

    deferred.on_done(wake)
    await trio.lowlevel.wait_task_rescheduled(give_up)
    return deferred.result()


async def carry_out(steps: Coroutine[Deferred[Any], None, T]) -> T:
    """The result of a coroutine that waits only for deferred values. It can be cancelled like any task of the loop."""
    try:
        waits_for = steps.send(None)
        while True:
            try:
                await _when_done(waits_for)
            except BaseException as cancelled:
                waits_for = steps.throw(cancelled)
            else:
                waits_for = steps.send(None)
    except StopIteration as end:
        value: T = end.value
        return value


async def _when_done(deferred: Deferred[Any]) -> None:
    """Wait until it has a value or a failure. The caller reads which."""
    there: Deferred[None] = Deferred()
    deferred.on_done(lambda _: there.resolve(None))
    await wait_for(there)


def later(nursery: trio.Nursery, call: Callable[[], Awaitable[T]]) -> Deferred[T]:
    """A deferred for the result of a coroutine of the loop, for code that is not one. Never resolved if the nursery is
    cancelled first."""
    answer: Deferred[T] = Deferred()

    async def run() -> None:
        try:
            value = await call()
        except Exception as error:
            answer.fail(error)
        else:
            answer.resolve(value)

    nursery.start_soon(run)
    return answer


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the highest the system allows: connections and segments both use descriptors.

    Changes the whole process, so only the program's main module calls it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:  # some systems report a higher limit than they allow
            _log.warning("the limit of open files stays %d: %s", soft, error)


def _log_timer_error(error: Exception) -> None:
    report("a timer's callback", error)
