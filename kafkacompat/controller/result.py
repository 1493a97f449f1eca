"""The result of a controller command: records to append, and the response to send once they are committed.

A command reads the state and never changes it. The state changes only when the records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

from kafkacompat.tasks import Work

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")

RECORDS_A_STEP = 200
"""Records or partitions that one step creates, replays or takes over. One takes 15 to 40 us."""
SCANNED_A_STEP = 20_000
"""Partitions that one step only reads. One takes 0.2 us."""
RECORD_COST = SCANNED_A_STEP // RECORDS_A_STEP
"""The cost of a record, in partitions that are only read."""


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R, T]):
    """`records` in order, to be written atomically. `response` is sent when they are committed."""

    records: tuple[R, ...]
    response: T


def whole(command: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Work[T]:
    """A command that needs no pauses, as a work."""
    return command(*arguments, **options)
    yield
