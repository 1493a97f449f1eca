"""Helpers for pure code that yields its cost (`tasks.Work`): how much one piece of it does, and commands that are called both with
pauses and at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, ParamSpec, TypeVar

from kafkacompat.tasks import Work, at_once

T = TypeVar("T")
P = ParamSpec("P")

RECORDS_A_STEP = 200
"""Records or partitions that one step creates, replays or takes over. One takes 15 to 40 us."""
SCANNED_A_STEP = 20_000
"""Partitions that one step only reads. One takes 0.2 us."""
RECORD_COST = SCANNED_A_STEP // RECORDS_A_STEP
"""The cost of a record, in partitions that are only read."""


class Stepped(Generic[P, T]):
    """Decorates a function that returns a work. A call carries it out at once, for callers that block nobody. `in_steps` is the
    function itself."""

    def __init__(self, function: Callable[P, Work[T]]) -> None:
        self.in_steps = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T:
        return at_once(self.in_steps(*arguments, **options))


def whole(command: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Work[T]:
    """Return a command that needs no pauses as a work."""
    return command(*arguments, **options)
    yield


def pieces(items: Sequence[T], size: int = RECORDS_A_STEP) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
