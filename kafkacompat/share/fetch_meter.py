"""How the share fetches of one group get their share-partitions (ShareGroupMetrics of Kafka's MBeans)."""

from __future__ import annotations

from kafkacompat.meters import Histogram

KEPT = 128
"""The newest values of each kind. Clients choose the number of groups, so there are fewer than in other histograms."""


class GroupFetchMeter:
    __slots__ = ("acquire_times_ms", "acquired_percent")

    def __init__(self) -> None:
        self.acquired_percent = Histogram(KEPT)
        """By fetch: the share-partitions that it could fetch from, in percent of those that it asked for."""
        self.acquire_times_ms = Histogram(KEPT)
        """How long a fetch waited until it could fetch from some, or waited no longer."""

    def acquired(self, since_ms: int, now_ms: int) -> int:
        """Note the end of a wait. Returns the time from which a fetch waits anew, if there is not enough yet."""
        self.acquire_times_ms.note(now_ms - since_ms)
        return now_ms
