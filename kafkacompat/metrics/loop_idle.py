"""The idle time of the event loop. One loop does what Kafka's network and request handler threads do.

It is the time in which the loop's thread neither used a processor nor waited for a free one, which the system counts. So
requests pay nothing for it. On a machine with too few processors a loop with too much to do runs only a part of the time,
and is not idle for the rest. A loop that is held up by a disk or a lock counts as idle; the watchdog counts its stalls.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, thread_time
from typing import NamedTuple

from kafkacompat.meters import RateOfTotal
from kafkacompat.net.watchdog import waited_s


class Idle(NamedTuple):
    """Shares of the time, from 0 to 1."""

    recently: float
    since_start: float


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
        self._began_s, self._worked_before_s = monotonic_s(), worked_s()
        self._recent = RateOfTotal(int(1000 * self._began_s), self._worked_before_s)

    def read(self) -> Idle:
        now_s, worked_s = self._monotonic_s(), self._worked_s()
        passed_s = now_s - self._began_s
        since_start = (worked_s - self._worked_before_s) / passed_s if passed_s > 0 else 0.0
        return Idle(_without(self._recent.read(int(1000 * now_s), worked_s)), _without(since_start))


def _without(worked: float) -> float:
    """The idle share, from that with work."""
    return min(max(1 - worked, 0.0), 1.0)
