"""Requests that wait for partitions or for a timeout, found by partition, with one timer for all deadlines.

Fetches and produces are unknown here; a waiting request decides itself what to do. Time and timers are ports, and
nothing blocks. A waiting request costs nothing between events of its partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers

MAX_WAITERS = 100_000
"""Bound of one list. Each connection parks at most one request, so the bound on connections is reached first."""
ACTED_AT_ONCE = 200
"""Waiting requests that one step of the loop checks or answers, at some tens of microseconds each. Thousands may wait
for one partition."""
COMPACT_ABOVE = 64
"""Below this size of the deadline heap, entries of finished requests stay until they expire."""

Key = Hashable
"""What a request waits for: a partition, a follower, a share-partition."""


class DelayedOperation:
    """Base class. `expire` gives the `answer` at the deadline. The list sets `parked` and `keys`."""

    __slots__ = ("answer", "deadline_ms", "keys", "parked")

    def __init__(self) -> None:
        self.answer: Deferred[Any] = Deferred()
        self.parked = False
        self.keys: tuple[Key, ...] = ()
        self.deadline_ms = 0

    @property
    def awaited(self) -> int:
        """What it still waits for, as expirations are counted."""
        return 1

    def expire(self) -> None:
        raise AssertionError("a waiter says how it expires")


W = TypeVar("W", bound=DelayedOperation)
M = TypeVar("M")


class DelayedOperationPurgatory(Generic[W]):
    def __init__(
        self, clock: Clock, timers: Timers, limit: int = MAX_WAITERS, acted_at_once: int = ACTED_AT_ONCE
    ) -> None:
        """`limit`: of waiting requests. `acted_at_once`: of those that one step checks or answers."""
        self._clock = clock
        self._timers = timers
        self._limit = limit
        self._acted_at_once = acted_at_once
        self.by_key: dict[Key, dict[W, None]] = {}
        """The waiting requests of each key, in parking order. Only this list changes it."""
        self._deadlines: list[tuple[int, int, W]] = []
        self._order = 0
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self.expirations = 0
        """What requests still awaited at their deadlines."""
        self._walks: dict[tuple[Key, Any], bool] = {}
        """Walks that take several steps, by what has moved. The value tells whether it has moved again meanwhile."""

    def __len__(self) -> int:
        return self._parked

    @property
    def sizes(self) -> tuple[int, int]:
        """Waiters, and waiters times the keys that each waits for."""
        return self._parked, sum(map(len, self.by_key.values()))

    def is_full(self) -> bool:
        return self._parked >= self._limit

    def park(self, waiter: W, keys: Iterable[Key], delay_ms: int) -> None:
        """Keep a request under its keys for delay_ms. The caller has checked is_full."""
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
        """Call `act` for the requests that wait on this key, in parking order. Any request may leave during the walk:
        an answer may cause an append to the same partition, which answers others.

        If very many wait, the first are handled now and the others in later turns of the loop, however often the
        partition moves meanwhile. A request whose `act` raises is dropped, so that it affects neither the others nor
        the caller.
        """
        present = self.by_key.get(key)
        if present is None:
            return
        waiting = list(present)
        if len(waiting) <= self._acted_at_once:
            self._act(waiting, act, moved)
        elif (key, moved) in self._walks:
            self._walks[key, moved] = True
        else:
            self._walks[key, moved] = False
            self._walk(key, act, moved, waiting, 0)

    def _walk(self, key: Key, act: Callable[[W, M], None], moved: M, waiting: list[W], start: int) -> None:
        end = start + self._acted_at_once
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
        """Remove a request that is being answered. Its deadline entry is removed later."""
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
        waiter.keys = ()  # the entry of its deadline must not keep what it waited for

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
        left = self._acted_at_once
        while (
            left and self._deadlines and (self._deadlines[0][0] <= now_ms or not self._deadlines[0][2].parked)
        ):
            waiter = heapq.heappop(self._deadlines)[2]
            if waiter.parked:
                left -= 1
                self.expirations += waiter.awaited
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
