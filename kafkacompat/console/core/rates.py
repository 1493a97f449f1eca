"""Records per second, from end offsets over time. The time is a parameter, in milliseconds. Samples are bounded by age
and number."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

RATE_WINDOW_MS = 10_000
MIN_SPAN_MS = 500
MAX_SAMPLES = 64
HISTORY_POINTS = 300

Ends = dict[str, int]


class Rates:
    """Rates by key (a topic's id) over the last RATE_WINDOW_MS, and the history of their sum."""

    __slots__ = ("_history", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Ends]] = deque(maxlen=MAX_SAMPLES)
        self._history: deque[tuple[int, float]] = deque(maxlen=HISTORY_POINTS)

    def copy(self) -> Rates:
        """Return a copy for another thread."""
        made = Rates()
        made._samples, made._history = self._samples.copy(), self._history.copy()
        return made

    def add(self, now_ms: int, ends: Ends) -> None:
        """Add the sums of end offsets at now_ms. If now_ms is before the previous sample (the clock was set), start again."""
        if self._samples and now_ms <= self._samples[-1][0]:
            self._samples.clear()
        self._samples.append((now_ms, ends))
        while len(self._samples) > 2 and now_ms - self._samples[1][0] >= RATE_WINDOW_MS:
            self._samples.popleft()
        known = [rate for key in ends if (rate := self.per_second(key)) is not None]
        if known:
            self._history.append((now_ms, sum(known)))

    def per_second(self, key: str) -> float | None:
        """Return records per second, or None until there are two samples. After a truncation of the log, counting
        restarts there."""
        points = [(at_ms, ends[key]) for at_ms, ends in self._samples if key in ends]
        if len(points) < 2 or points[-1][0] - points[0][0] < MIN_SPAN_MS:
            return None
        grown = sum(max(0, after[1] - before[1]) for before, after in pairwise(points))
        return grown * 1000 / (points[-1][0] - points[0][0])

    def history(self) -> list[tuple[int, float]]:
        """Return (time, records per second over all keys), oldest first."""
        return list(self._history)
