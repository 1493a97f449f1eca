"""How long the event loop waits for something to do. One loop does what Kafka's network and request handler threads do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import trio

RECENT_S = 30.0
"""The measured time is at least so long, once the loop runs so long: the window of Kafka's io-wait-ratio."""
APART_S = 1.0
"""Readings that are closer to the last one are not kept. This bounds their number."""


class Idle(NamedTuple):
    """Shares of the time, from 0 to 1."""

    recently: float
    since_start: float


class LoopWaits(trio.abc.Instrument):
    """An instrument of trio. It reads the clock twice for each turn in which the loop has nothing to do."""

    def __init__(self, monotonic_s: Callable[[], float] = monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._waited_s = 0.0
        self._waits_since_s = 0.0
        self._began_s = monotonic_s()
        self._readings: deque[tuple[float, float]] = deque([(self._began_s, 0.0)])
        """(time, seconds waited until then). All but the first one are of the last RECENT_S."""

    def before_io_wait(self, timeout: float) -> None:
        if timeout <= 0:
            return  # a look at the sockets
        self._waits_since_s = self._monotonic_s()

    def after_io_wait(self, timeout: float) -> None:
        if timeout <= 0:
            return
        self._waited_s += self._monotonic_s() - self._waits_since_s

    def read(self) -> Idle:
        now_s, waited_s, readings = self._monotonic_s(), self._waited_s, self._readings
        while len(readings) > 1 and readings[1][0] <= now_s - RECENT_S:
            readings.popleft()
        then_s, waited_then_s = readings[0]
        if now_s - readings[-1][0] >= APART_S:
            readings.append((now_s, waited_s))
        return Idle(_share(waited_s - waited_then_s, now_s - then_s), _share(waited_s, now_s - self._began_s))


def _share(part_s: float, whole_s: float) -> float:
    return min(part_s / whole_s, 1.0) if whole_s > 0 else 1.0
