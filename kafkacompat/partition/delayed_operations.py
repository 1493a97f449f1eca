"""Requests that wait for partitions or for time: found by partition, one timer for all deadlines.

Knows neither fetches nor produces; a waiter says itself what to do. It does not wait: time and timers are ports.
A waiter costs nothing between the events of its own partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers

MAX_WAITERS = 100_000
"""Bound of one list. Each connection parks at most one request, so the bound on connections comes first."""
ACTED_AT_ONCE = 200
"""Waiters that one step of the loop looks at or answers, some tens of microseconds each: thousands may wait for one partition."""
COMPACT_ABOVE = 64
"""Entries of the deadline heap below which those of finished waiters are left to expire."""

Key = tuple[str, int]


class DelayedOperation:
    """Base: `expire` gives the `answer` when its time is up. Set by the list: parked, keys."""

    __slots__ = ("answer", "deadline_ms", "keys", "parked")

    def __init__(self) -> None:
        self.answer: Deferred[Any] = Deferred()
        self.parked = False
        self.keys: tuple[Key, ...] = ()
        self.deadline_ms = 0

    def expire(self) -> None:
        raise AssertionError("a waiter says how it expires")


W = TypeVar("W", bound=DelayedOperation)
M = TypeVar("M")


class DelayedOperationPurgatory(Generic[W]):
    def __init__(self, clock: Clock, timers: Timers, limit: int = MAX_WAITERS) -> None:
        self._clock = clock
        self._timers = timers
        self._limit = limit
        self.by_key: dict[Key, dict[W, None]] = {}
        """Who waits for what, in order of parking; changed by this list alone."""
        self._deadlines: list[tuple[int, int, W]] = []
        self._order = 0
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self._walks: dict[tuple[Key, Any], bool] = {}
        """Of those that take several steps, by what moved: whether it has moved again meanwhile."""

    def __len__(self) -> int:
        return self._parked

    def is_full(self) -> bool:
        return self._parked >= self._limit

    def park(self, waiter: W, keys: Iterable[Key], delay_ms: int) -> None:
        """Keep the waiter under its keys for delay_ms. The caller has looked at is_full."""
        waiter.keys = tuple(keys)
        waiter.deadline_ms = self._clock.monotonic_ms() + delay_ms
        waiter.parked = True
        self._parked += 1
        for key in waiter.keys:
            present = self.by_key.get(key)
            if present is None:
                self.by_key[key] = {waiter: None}
            else:
                present[waiter] = None
        self._order += 1
        heapq.heappush(self._deadlines, (waiter.deadline_ms, self._order, waiter))
        if len(self._deadlines) > 2 * self._parked + COMPACT_ABOVE:
            self._deadlines = [entry for entry in self._deadlines if entry[2].parked]
            heapq.heapify(self._deadlines)
        if self._timer is None or self._timer_at_ms > self._deadlines[0][0]:
            self._arm()

    def for_each_on(self, key: Key, act: Callable[[W, M], None], moved: M) -> None:
        """Act on who waits for this partition, in order of parking. They may leave while it is walked, also others than the one
        at hand: an answer may bring about an append to the same partition, and that the answers of the rest.

        Of very many the first are acted on now, and the others in the loop's next turns, however often it moves meanwhile.
        One that makes `act` raise is given up: neither the others nor whoever moved the partition are to blame.
        """
        present = self.by_key.get(key)
        if present is None:
            return
        waiting = list(present)
        if len(waiting) <= ACTED_AT_ONCE:
            self._act(waiting, act, moved)
        elif (key, moved) in self._walks:
            self._walks[key, moved] = True
        else:
            self._walks[key, moved] = False
            self._walk(key, act, moved, waiting, 0)

    def _walk(self, key: Key, act: Callable[[W, M], None], moved: M, waiting: list[W], start: int) -> None:
        end = start + ACTED_AT_ONCE
        self._act(waiting[start:end], act, moved)
        if end < len(waiting):
            self._timers.call_after(0, partial(self._walk, key, act, moved, waiting, end))
        elif self._walks.pop((key, moved)):
            self.for_each_on(key, act, moved)

    def _act(self, waiting: list[W], act: Callable[[W, M], None], moved: M) -> None:
        for waiter in waiting:
            if waiter.parked:
                try:
                    act(waiter, moved)
                except Exception as error:
                    self._give_up(waiter, error)

    def remove(self, waiter: W) -> None:
        """It is being answered. Its deadline is forgotten lazily."""
        if not waiter.parked:
            return
        waiter.parked = False
        self._parked -= 1
        for key in waiter.keys:
            present = self.by_key.get(key)
            if present is not None:
                present.pop(waiter, None)
                if not present:
                    del self.by_key[key]

    def all(self) -> list[W]:
        return [entry[2] for entry in sorted(self._deadlines, key=lambda entry: entry[1]) if entry[2].parked]

    def _arm(self) -> None:
        at_ms = self._deadlines[0][0]
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._timers.call_at(at_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        left = ACTED_AT_ONCE
        while (
            left and self._deadlines and (self._deadlines[0][0] <= now_ms or not self._deadlines[0][2].parked)
        ):
            waiter = heapq.heappop(self._deadlines)[2]
            if waiter.parked:
                left -= 1
                self.remove(waiter)
                try:
                    waiter.expire()
                except Exception as error:
                    self._give_up(waiter, error)
        if self._deadlines:
            self._arm()

    def _give_up(self, waiter: W, error: Exception) -> None:
        self.remove(waiter)
        report("answering a parked request", error)
        if not waiter.answer.done:
            waiter.answer.fail(error)
