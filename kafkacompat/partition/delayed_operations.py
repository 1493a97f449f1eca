"""Requests that wait for partitions or for a timeout, found by partition, with one timer for all deadlines.

Fetches and produces are unknown here; a waiting request decides itself what to do. Time and timers are ports, and
nothing blocks. A waiting request costs nothing between events of its partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers

MAX_WAITERS = 100_000
"""Bound of one list. A connection parks one fetch, but as many produces as it may have replies waiting (net/replies). Beyond
the bound a request is answered as if its time were over."""
TURN_US = 4_000
"""What waiting requests may cost in one turn of the loop: a fifth of the limit of one step, because the costs are
estimates for an idle machine, and the last answer may exceed it."""
LOOK_US = 3
"""The cost of a look at one request."""
ANSWER_US = 30
"""The cost of an answer, besides what it says of each partition."""
COMPACT_ABOVE = 64
"""Below this size of the deadline heap, entries of finished requests stay until they expire."""

Key = Hashable
"""What a request waits for: a partition, a follower, a share-partition."""


class Waits(Protocol):
    def go_on(self, until_us: int) -> bool:
        """Do some of what is left over, until no more than `until_us` of the budget is left. Returns whether there is
        more."""


class TurnBudget:
    """The time that all lists of waiting requests share in one turn of the loop. What exceeds it is done in later turns.

    One record may wake hundreds of requests, each with an answer about hundreds of partitions. One request may change
    hundreds of partitions, for each of which hundreds wait. So the work is counted, not the requests.
    """

    __slots__ = ("_is_renewed_soon", "_timers", "_turn_us", "_waiting", "left_us", "reserved_us")

    def __init__(self, timers: Timers, turn_us: int = TURN_US) -> None:
        self._timers = timers
        self._turn_us = turn_us
        self.left_us = turn_us
        self.reserved_us = turn_us // 4
        """For requests that are woken now. So they need not wait until a long backlog is done."""
        self._is_renewed_soon = False
        self._waiting: dict[Waits, None] = {}
        """Lists with something left over. They take turns."""

    def wait(self, waits: Waits) -> None:
        """Have a list go on in later turns."""
        self._waiting[waits] = None
        self.renew_soon()

    def renew_soon(self) -> None:
        """Called when only what is reserved is left, so that few of those who wake a single request set a timer."""
        if not self._is_renewed_soon:
            self._is_renewed_soon = True
            self._timers.call_after(0, self._renew)  # not a task: each turn with an append may need it

    def _renew(self) -> None:
        self._is_renewed_soon = False
        self.left_us = self._turn_us
        while self._waiting and self.left_us > self.reserved_us:
            first = next(iter(self._waiting))
            del self._waiting[first]
            if first.go_on(self.reserved_us):
                self._waiting[first] = None
        if self._waiting:
            self.renew_soon()


class DelayedOperation:
    """Base class. `expire` gives the `answer` at the deadline. The list sets `parked`, `keys` and `place`."""

    __slots__ = ("answer", "cost_us", "deadline_ms", "keys", "parked", "place")

    def __init__(self) -> None:
        self.answer: Deferred[Any] = Deferred()
        self.cost_us = LOOK_US
        """Of the last look or answer. Whoever looks or answers says if it was more than a look."""
        self.parked = False
        self.keys: tuple[Key, ...] = ()
        self.place: list[Any] = []
        """This request, among the deadlines. Empty once it has left."""
        self.deadline_ms = 0

    @property
    def awaited(self) -> int:
        """What it still waits for, as expirations are counted."""
        return 1

    def expire(self) -> None:
        raise AssertionError("a waiter says how it expires")


W = TypeVar("W", bound=DelayedOperation)
M = TypeVar("M")


class _Walk:
    """A look at all requests of a key."""

    __slots__ = ("act", "again", "at", "key", "moved", "waiting")

    def __init__(self, key: Key, act: Callable[[Any, Any], None], moved: Any) -> None:
        self.key = key
        self.act = act
        self.moved = moved
        self.waiting: list[Any] | None = None
        """None before it has begun. Then it need not be made again, whatever moves."""
        self.at = 0
        self.again = False
        """It has moved again meanwhile."""


class DelayedOperationPurgatory(Generic[W]):
    def __init__(self, clock: Clock, timers: Timers, budget: TurnBudget, limit: int = MAX_WAITERS) -> None:
        """`limit`: of waiting requests. `budget`: of the node."""
        self._clock = clock
        self._timers = timers
        self._budget = budget
        self._limit = limit
        self.by_key: dict[Key, dict[W, None]] = {}
        """The waiting requests of each key, in parking order. Only this list changes it."""
        self._deadlines: list[tuple[int, int, list[W]]] = []
        """A heap, with the place of each request."""
        self._order = 0
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self.expirations = 0
        """What requests still awaited at their deadlines."""
        self._left_over: dict[Hashable, _Walk | None] = {}
        """What had no room in the turn of the loop: walks by key and what has moved, and None for the requests whose
        deadlines have passed. They take turns."""

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
        deadline_ms = waiter.deadline_ms = self._clock.monotonic_ms() + delay_ms
        waiter.parked = True
        self._parked += 1
        for key in waiter.keys:
            present = self.by_key.get(key)
            if present is None:
                self.by_key[key] = {waiter: None}
            else:
                present[waiter] = None
        self._order += 1
        place = waiter.place = [waiter]
        heapq.heappush(self._deadlines, (deadline_ms, self._order, place))
        if len(self._deadlines) > 2 * self._parked + COMPACT_ABOVE:
            self._deadlines = [entry for entry in self._deadlines if entry[2]]
            heapq.heapify(self._deadlines)
        if self._timer is None or self._timer_at_ms > deadline_ms:
            self._arm()

    def for_each_on(self, key: Key, act: Callable[[W, M], None], moved: M) -> None:
        """Call `act` for the requests that wait on this key, in parking order. Any request may leave during the walk:
        an answer may cause an append to the same partition, which answers others.

        What has no room in this turn of the loop follows in later ones, however often the partition moves meanwhile. A
        request whose `act` raises is dropped, so that it affects neither the others nor the caller.
        """
        present = self.by_key.get(key)
        if present is None:
            return
        if self._left_over:
            walk = self._left_over.get((key, moved))
            if walk is not None:
                walk.again = walk.waiting is not None
                return
        budget = self._budget
        if len(present) == 1 and budget.left_us > 0:  # mostly
            (waiter,) = present
            try:
                act(waiter, moved)
            except Exception as error:
                self._give_up(waiter, error)
            budget.left_us -= waiter.cost_us
            if budget.left_us < budget.reserved_us:
                budget.renew_soon()
            return
        waiting = list(present) if budget.left_us > 0 else None
        at = 0 if waiting is None else self._act(waiting, 0, act, moved, 0)
        if waiting is None or at < len(waiting):
            # If it has moved again meanwhile, a later walk may be left over. That one looks at everybody.
            if (key, moved) not in self._left_over:
                walk = self._left_over[key, moved] = _Walk(key, act, moved)
                walk.waiting, walk.at = waiting, at
                budget.wait(self)
        elif budget.left_us < budget.reserved_us:
            budget.renew_soon()

    def _act(self, waiting: list[W], at: int, act: Callable[[W, M], None], moved: M, until_us: int) -> int:
        """Act on these requests from the index `at` on, until no more than `until_us` of the budget is left. Returns the
        index after the last one."""
        budget = self._budget
        while at < len(waiting) and budget.left_us > until_us:
            waiter = waiting[at]
            at += 1
            if waiter.parked:
                try:
                    act(waiter, moved)
                except Exception as error:
                    self._give_up(waiter, error)
                budget.left_us -= waiter.cost_us
        return at

    def go_on(self, until_us: int) -> bool:
        """Do some of what is left over. Returns whether there is more."""
        budget, left_over = self._budget, self._left_over
        while left_over and budget.left_us > until_us:
            name, walk = next(iter(left_over.items()))
            if walk is None:
                is_over = self._expire_due(until_us)
                if is_over and self._deadlines:
                    self._arm()
            else:
                if walk.waiting is None:
                    walk.waiting = list(self.by_key.get(walk.key, ()))
                walk.at = self._act(walk.waiting, walk.at, walk.act, walk.moved, until_us)
                is_over = walk.at >= len(walk.waiting)
                if is_over and walk.again:
                    walk = _Walk(walk.key, walk.act, walk.moved)
                    is_over = False
            del left_over[name]
            if not is_over:
                left_over[name] = walk
        return bool(left_over)

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
        waiter.keys = ()
        waiter.place.clear()  # what it waited for and is answered with must not stay until its deadline

    def all(self) -> list[W]:
        in_order = sorted(self._deadlines, key=lambda entry: entry[1])
        return [waiter for _, _, place in in_order for waiter in place]

    def _arm(self) -> None:
        at_ms = self._deadlines[0][0]
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
            # If there is no memory for another one, the next request that is parked sets it.
            self._timer = None
        self._timer_at_ms = at_ms
        self._timer = self._timers.call_at(at_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if None in self._left_over:
            return
        if not self._expire_due(0):
            self._left_over[None] = None
            self._budget.wait(self)
            return
        if self._budget.left_us < self._budget.reserved_us:
            self._budget.renew_soon()
        if self._deadlines:
            self._arm()

    def _expire_due(self, until_us: int) -> bool:
        """Answer requests whose deadlines have passed, until no more than `until_us` of the budget is left. Returns
        whether these were all."""
        budget = self._budget
        now_ms = self._clock.monotonic_ms()
        while self._deadlines and (self._deadlines[0][0] <= now_ms or not self._deadlines[0][2]):
            if budget.left_us <= until_us:
                return False
            place = heapq.heappop(self._deadlines)[2]
            if place:
                waiter = place[0]
                self.expirations += waiter.awaited
                self.remove(waiter)
                try:
                    waiter.expire()
                except Exception as error:
                    self._give_up(waiter, error)
                budget.left_us -= waiter.cost_us
        return True

    def _give_up(self, waiter: W, error: Exception) -> None:
        self.remove(waiter)
        report("answering a parked request", error)
        if not waiter.answer.done:
            waiter.answer.fail(error)
