"""Long work of coordinators in small pieces, with turns of the loop in between.

In each turn of the loop one work does a piece, in rotation. A work is an iterator that does a little each time and
yields the estimated cost in microseconds. Between two turns everything may have changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.ports import Timers

T = TypeVar("T")
Work = Iterator[int]

TURN_COST = 4_000
"""The cost after which a turn ends: a fifth of the limit of one step, because the estimates are for an idle machine."""


def at_once(work: Generator[int, None, T]) -> T:
    """The value of a work that is known to be short, without turns of the loop in between."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


class Turn:
    """One caller at a time may hold something that takes much memory. The others wait in order, at most one for each partition."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, taken: Callable[[], None]) -> None:
        """`taken` is called when the turn belongs to the caller: at once, or when the holder releases it."""
        if self._is_taken:
            self._waiting.append(taken)
            return
        self._is_taken = True
        taken()

    def give_back(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._waiting:
            self._waiting.popleft()()


class Steps:
    """All works of one coordinator share this object, so that together they use no more of the loop than a single one."""

    __slots__ = ("_is_planned", "_timers", "_works", "keep", "large", "turns")

    def __init__(self, timers: Timers, keep: Callable[[], None] = lambda: None) -> None:
        """`keep` is called when many long-lived objects have been created (`server.garbage.keep_long_lived`)."""
        self._timers = timers
        self.keep = keep
        self._works: deque[tuple[str, Work]] = deque()
        """Bounded by what can be in progress: a load, an unload and the sweeps of each shard, and requests that were
        cut into pieces."""
        self._is_planned = False
        self.turns = 0
        self.large = Turn()

    def __len__(self) -> int:
        return len(self._works)

    def start(self, what: str, work: Work) -> None:
        self._works.append((what, work))
        self._plan()

    def start_now(self, what: str, work: Work) -> None:
        """Like `start`, but its first piece runs at once."""
        if self._turn_of(what, work):
            self.start(what, work)

    def value(self, what: str, work: Generator[int, None, T]) -> Deferred[T]:
        """Return the work's value. The first piece runs at once. A failure goes to the waiting caller and is not reported."""
        given: Deferred[T] = Deferred()

        def carried_on() -> Work:
            try:
                value = yield from work
            except Exception as error:
                given.fail(error)
            else:
                given.resolve(value)

        self.start_now(what, carried_on())
        return given

    def finish(self) -> None:
        """Do all remaining works at once, in the order of their start."""
        while self._works:
            what, work = self._works.popleft()
            while self._turn_of(what, work):
                pass

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._timers.call_after(0, self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        if not self._works:
            return
        what, work = self._works.popleft()
        if self._turn_of(what, work):
            self._works.append((what, work))
        if self._works:
            self._plan()

    def _turn_of(self, what: str, work: Work) -> bool:
        """Do a work's piece. Return False if the work is done. If it raises, it is over and the exception is reported."""
        self.turns += 1
        left = TURN_COST
        try:
            for cost in work:
                left -= cost
                if left <= 0:
                    return True
        except Exception as error:
            report(what, error)
        return False
