"""Long work of coordinators in small pieces, between which everybody else has the loop.

One turn of the loop gives one work its piece, in rotation. A work is an iterator that does a little each time and says what
that has cost, in microseconds by estimate; between two turns everything may have changed.
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
"""After which a turn ends: a fifth of what one step of the loop may take, since the estimates are of a quiet machine."""


class Turn:
    """One at a time holds what takes much memory; the others wait in order, one for each partition at most."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, taken: Callable[[], None]) -> None:
        """`taken` is called once it is the caller's: at once, or by whoever gives it back."""
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
    """All works of one coordinator share it, so that together they take no more of the loop than one of them."""

    __slots__ = ("_is_planned", "_timers", "_works", "keep", "large", "turns")

    def __init__(self, timers: Timers, keep: Callable[[], None] = lambda: None) -> None:
        """`keep` is told when much has been made that lives long (`net.runtime.keep_long_lived`)."""
        self._timers = timers
        self.keep = keep
        self._works: deque[tuple[str, Work]] = deque()
        """Bounded by what is begun: a load, an unload and the sweeps of each shard, and requests that were cut in pieces."""
        self._is_planned = False
        self.turns = 0
        self.large = Turn()

    def __len__(self) -> int:
        return len(self._works)

    def start(self, what: str, work: Work) -> None:
        self._works.append((what, work))
        self._plan()

    def start_now(self, what: str, work: Work) -> None:
        """As `start`, with its first turn at once."""
        if self._turn_of(what, work):
            self.start(what, work)

    def value(self, what: str, work: Generator[int, None, T]) -> Deferred[T]:
        """What the work gives, its first turn at once. A failure is the waiter's, and not reported."""
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
        """Do all that is left at once, in the order in which it began."""
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
        """False when it is done. One that raises is over, and reported."""
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
