"""Long work in steps: a generator that yields whenever other work may run in between, and the code that runs it.

One work uses all turns, and yields nothing. `stepping/jobs` is for works that wait for jobs and share the turns. The
work itself counts what a step does and keeps it far below the limit of 20 ms. This module is independent of the kind
of work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from kafkacompat.stepping.jobs import all_steps
from kafkacompat.tasks import Work

if TYPE_CHECKING:
    from kafkacompat.ports import TimerHandle, Timers

T = TypeVar("T")
Steps = Generator[int | None, None, T]

P = ParamSpec("P")

RECORDS_A_STEP = 200
"""Records or partitions that one step creates, replays or takes over. One takes 15 to 40 us."""
SCANNED_A_STEP = 20_000
"""Partitions that one step only reads. One takes 0.2 us."""
RECORD_COST = SCANNED_A_STEP // RECORDS_A_STEP
"""The cost of a record, in partitions that are only read."""


class Stepped(Generic[P, T]):
    """Decorates a generator function. A call does all steps at once, for callers that block nobody. `in_steps` is the
    generator function."""

    def __init__(self, function: Callable[P, Work[T]]) -> None:
        self.in_steps = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T:
        return all_steps(self.in_steps(*arguments, **options))


def whole(command: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Work[T]:
    """Return a command that needs no steps as a generator."""
    return command(*arguments, **options)
    yield


def pieces(items: Sequence[T], size: int = RECORDS_A_STEP) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


class Stepper:
    """Runs the first step of a work at once, and one step in each later turn of the loop. Without timers it runs all
    steps at once."""

    def __init__(self, timers: Timers | None) -> None:
        self._timers = timers
        self._work: Steps[object] | None = None
        self._timer: TimerHandle | None = None
        self._done: Callable[[Callable[[], object]], None] = _ignore

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    def run(self, work: Steps[T], done: Callable[[Callable[[], T]], None]) -> None:
        """Run the first step now. `done` is called once, with a function that returns the work's value or raises its exception."""
        assert self._work is None
        self._work = work
        self._done = done  # type: ignore[assignment]  # it is told of this work only
        self._step()

    def cancel(self) -> None:
        """Stop the work. `done` is not called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is not None:
            work, self._work = self._work, None
            work.close()

    def _step(self) -> None:
        self._timer = None
        work = self._work
        assert work is not None
        try:
            if self._timers is not None:
                next(work)
                if self._work is work:
                    self._timer = self._timers.call_after(0, self._step)
                return
            value = all_steps(work)
        except StopIteration as end:
            value = end.value
        except Exception as error:
            if self._work is work:
                self._work = None
                self._done(_raiser(error))
            return
        if self._work is work:
            self._work = None
            self._done(lambda: value)


def _raiser(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def _ignore(outcome: Callable[[], object]) -> None:
    """Used before the first work: nothing waits for an outcome."""
