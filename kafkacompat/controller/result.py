"""What a command of the controller gives: records to append and the answer to send once they are committed.

A command looks at state and never changes it; state changes only when the records are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R, T]):
    """`records` in the order to be written, as one atomic unit; `response` leaves when they are committed."""

    records: tuple[R, ...]
    response: T
