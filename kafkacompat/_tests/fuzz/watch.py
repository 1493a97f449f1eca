"""A watchdog over the processor time of single steps, for runs that look for held-up loops; no test judges by it.

What a step costs under load differs from machine to machine. So a stall is told and is no finding, unless it has no end.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HELD_S = 0.15
ENDLESS_S = 20.0


class EndlessStep(AssertionError):
    """A step of the loop that does not end."""


class Watch:
    """Of the main thread. `told` are stacks of steps that took long, the same place once."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self._doing = ""
        self._fired = 0
        signal.signal(signal.SIGVTALRM, self._held)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        self._doing = what
        self._fired = 0
        signal.setitimer(signal.ITIMER_VIRTUAL, HELD_S, ENDLESS_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _held(self, number: int, frame: FrameType | None) -> None:
        stack = traceback.format_stack(frame)
        self._fired += 1
        if self._fired > 1:
            raise EndlessStep(f"{self._doing} computes for {ENDLESS_S} s:\n{''.join(stack[-14:])}")
        self.told.setdefault(stack[-1], f"{self._doing}\n{''.join(stack[-8:])}")
