"""The result of a controller command: records to append, and the response to send once they are committed.

A command reads the state and never changes it. The state changes only when the records are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R, T]):
    """`records` in order, to be written atomically. `response` is sent when they are committed."""

    records: tuple[R, ...]
    response: T
