"""Frees large lists and dictionaries in steps of the loop: the last reference to half a million objects takes a tenth of a
second to go."""

from __future__ import annotations

from collections import deque
from typing import Any

from kafkacompat.ports import Timers

FREED_AT_ONCE = 5_000
"""Elements that are freed in one turn of the loop, at up to a third of a microsecond."""


class Freeing:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[list[Any] | dict[Any, Any]] = deque()

    def free(self, held: list[Any] | dict[Any, Any]) -> None:
        """Empty it in later turns of the loop if it is large. Nobody may use it any more."""
        if len(held) <= FREED_AT_ONCE:
            return
        self._waiting.append(held)
        if len(self._waiting) == 1:
            self._timers.call_after(0, self._step)

    def _step(self) -> None:
        held = self._waiting[0]
        if isinstance(held, list):
            del held[-FREED_AT_ONCE:]
        else:
            for _ in range(min(len(held), FREED_AT_ONCE)):
                held.popitem()
        if not held:
            self._waiting.popleft()
        if self._waiting:
            self._timers.call_after(0, self._step)
