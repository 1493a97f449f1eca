"""Records a second from end offsets over time. Time comes in as milliseconds; samples are bounded by age and number."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

RATE_WINDOW_MS = 10_000
MIN_SPAN_MS = 500
MAX_SAMPLES = 64
HISTORY_POINTS = 300

Ends = dict[str, int]


class Rates:
    """Rates per key (a topic's id) over the last RATE_WINDOW_MS, and the history of their sum."""

    __slots__ = ("_history", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Ends]] = deque(maxlen=MAX_SAMPLES)
        self._history: deque[tuple[int, float]] = deque(maxlen=HISTORY_POINTS)

    def copy(self) -> Rates:
        """As it is now, for another thread."""
        made = Rates()
        made._samples, made._history = self._samples.copy(), self._history.copy()
        return made

    def add(self, now_ms: int, ends: Ends) -> None:
        """Take in the sums of end offsets at now_ms. A sample from before the last one (the clock was set) starts anew."""
        if self._samples and now_ms <= self._samples[-1][0]:
            self._samples.clear()
        self._samples.append((now_ms, ends))
        while len(self._samples) > 2 and now_ms - self._samples[1][0] >= RATE_WINDOW_MS:
            self._samples.popleft()
        known = [rate for key in ends if (rate := self.per_second(key)) is not None]
        if known:
            self._history.append((now_ms, sum(known)))

    def per_second(self, key: str) -> float | None:
        """Records a second; None until there are two samples. A log that was cut back counts from there."""
        points = [(at_ms, ends[key]) for at_ms, ends in self._samples if key in ends]
        if len(points) < 2 or points[-1][0] - points[0][0] < MIN_SPAN_MS:
            return None
        grown = sum(max(0, after[1] - before[1]) for before, after in pairwise(points))
        return grown * 1000 / (points[-1][0] - points[0][0])

    def history(self) -> list[tuple[int, float]]:
        """(time, records a second over all keys), oldest first."""
        return list(self._history)
