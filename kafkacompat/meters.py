"""Numbers that parts of a node take of their own work, and that only a scrape reads (metrics/)."""

from __future__ import annotations

from collections import deque
from math import nan
from threading import Lock

KEPT = 1028
"""The values that Kafka's histograms keep. These here are the newest ones."""
RECENT_MS = 60_000
"""For so long Kafka's metrics show a value: two samples of 30 s (metrics.num.samples, metrics.sample.window.ms)."""
RECENT_MAX = 1_000
RATE_MS = 30_000
"""A rate is of the last 30 s at least, as soon as something is measured for so long."""
APART_MS = 1_000
"""Readings that are closer to the last one are not kept. This bounds their number."""


class Histogram:
    """The number of values, and the newest of them. Any thread."""

    __slots__ = ("_lock", "count", "recent")

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = Lock()
        self.count = 0
        self.recent: deque[float] = deque(maxlen=kept)

    def note(self, value: float) -> None:
        with self._lock:
            self.count += 1
            self.recent.append(value)

    def ordered(self) -> list[float]:
        """The newest values, in ascending order."""
        with self._lock:
            values = list(self.recent)
        return sorted(values)


class RecentTimes:
    """Durations in ms that ended in the last minute. Of more than RECENT_MAX, the newest. The loop's thread."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: deque[tuple[int, int]] = deque(maxlen=RECENT_MAX)

    def note(self, duration_ms: int, now_ms: int) -> None:
        self._ended.append((now_ms, duration_ms))

    def mean_and_max(self, now_ms: int) -> tuple[float, float]:
        """NaN if there are none, as in Kafka."""
        while self._ended and self._ended[0][0] <= now_ms - RECENT_MS:
            self._ended.popleft()
        if not self._ended:
            return nan, nan
        durations = [duration for _, duration in self._ended]
        return sum(durations) / len(durations), max(durations)


class RecentMax:
    """The largest of what several readings have found, in the last minute, or since the reading before. Only who reads it
    pays for it."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: deque[tuple[int, int]] = deque(maxlen=RECENT_MAX)

    def read(self, now_ms: int, largest: int) -> float:
        """`largest`: since the last call. 0, which is none, counts for nothing. NaN: there was none."""
        readings = self._readings
        while readings and readings[0][0] <= now_ms - RECENT_MS:
            readings.popleft()
        if largest:
            readings.append((now_ms, largest))
        return max((each for _, each in readings), default=nan)


class RateOfTotal:
    """How much a total grows a second, in the last 30 s or more. Only who reads it pays for it: what is counted costs nothing
    beside its counting."""

    __slots__ = ("_readings",)

    def __init__(self, now_ms: int, total: float = 0) -> None:
        """Times are of a monotonic clock, as in `read`."""
        self._readings: deque[tuple[int, float]] = deque([(now_ms, total)])
        """(time, total). All but the first one are of the last RATE_MS."""

    def read(self, now_ms: int, total: float) -> float:
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now_ms - RATE_MS:
            readings.popleft()
        then_ms, before = readings[0]
        if now_ms - readings[-1][0] >= APART_MS:
            readings.append((now_ms, total))
        return 1000 * (total - before) / (now_ms - then_ms) if now_ms > then_ms else 0.0
