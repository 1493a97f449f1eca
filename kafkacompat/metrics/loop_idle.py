"""The idle time of the event loop. One loop does what Kafka's network and request handler threads do.

It is the time in which the loop's thread neither used a processor nor waited for a free one, which the system counts. So
requests pay nothing for it. On a machine with too few processors a loop with too much to do runs only a part of the time,
and is not idle for the rest. A loop that is held up by a disk or a lock counts as idle; the watchdog counts its stalls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic, thread_time
from typing import NamedTuple

SCHEDULING = "/proc/thread-self/schedstat"
"""Of the reading thread, on Linux: ns on a processor, ns of waiting for one, and how often it got one."""
RECENT_S = 30.0
"""The measured time is at least so long, once the loop runs so long: the window of Kafka's io-wait-ratio."""
APART_S = 1.0
"""Readings that are closer to the last one are not kept. This bounds their number."""


class Idle(NamedTuple):
    """Shares of the time, from 0 to 1."""

    recently: float
    since_start: float


def waited_s(path: str = SCHEDULING) -> float:
    """How long the calling thread had something to do, and no processor was free for it: seconds since its start. 0 where
    the system does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _worked_s() -> float:
    return thread_time() + waited_s()


class LoopIdle:
    """Make and call it in the loop's thread."""

    def __init__(
        self, monotonic_s: Callable[[], float] = monotonic, worked_s: Callable[[], float] = _worked_s
    ) -> None:
        """`worked_s`: how long the calling thread had something to do."""
        self._monotonic_s = monotonic_s
        self._worked_s = worked_s
        self._began = monotonic_s(), worked_s()
        self._readings: deque[tuple[float, float]] = deque([self._began])
        """(time, time with work). All but the first one are of the last RECENT_S."""

    def read(self) -> Idle:
        now, readings = (self._monotonic_s(), self._worked_s()), self._readings
        while len(readings) > 1 and readings[1][0] <= now[0] - RECENT_S:
            readings.popleft()
        then = readings[0]
        if now[0] - readings[-1][0] >= APART_S:
            readings.append(now)
        return Idle(_share(then, now), _share(self._began, now))


def _share(then: tuple[float, float], now: tuple[float, float]) -> float:
    """The idle share between two readings."""
    passed_s, worked_s = now[0] - then[0], now[1] - then[1]
    return min(max(1 - worked_s / passed_s, 0.0), 1.0) if passed_s > 0 else 1.0
