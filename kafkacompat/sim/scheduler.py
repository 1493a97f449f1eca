"""Virtual time: a heap of future events. Events with equal times keep the order in which they were planned."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Scheduler:
    """The time is in microseconds since the start of the simulation."""

    __slots__ = ("_heap", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._sequence = 0

    def after(self, delay_us: int, call: Callable[[Any], None], argument: Any = None) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, call, argument))

    def run_next(self) -> bool:
        """Run the next event. Return False if there is none."""
        if not self._heap:
            return False
        self.now_us, _, call, argument = heapq.heappop(self._heap)
        call(argument)
        return True
