"""A number of events and their rate, as Kafka's Meter has them: over two samples of 30 seconds (metrics.num.samples,
metrics.sample.window.ms)."""

from __future__ import annotations

from kafkacompat.quota.rate import METERED_SAMPLE_MS, METERED_SAMPLES, Rate


class Counted:
    """A number of events, and their rate."""

    __slots__ = ("_rate", "count")

    def __init__(self) -> None:
        self.count = 0
        self._rate = Rate(METERED_SAMPLES, METERED_SAMPLE_MS)

    def note(self, now_ms: int, number: int = 1) -> None:
        """`now_ms` is monotonic."""
        self.count += number
        self._rate.record(number, now_ms)

    def read(self, now_ms: int) -> tuple[int, float]:
        """(number, number per second)."""
        return self.count, self._rate.measure(now_ms)
