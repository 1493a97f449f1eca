"""What the cleaner has done last: LogCleaner and LogCleanerManager of Kafka's MBeans."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.work import CleanerStats


class CleanerMeter:
    """Of the last search for a dirty log and the last cleaning. With several threads, of whichever ended last; Kafka
    shows the maximum over the last ones of all threads."""

    __slots__ = (
        "buffer_utilization",
        "clean_time_ms",
        "dirty_ratio",
        "overdue_ms",
        "recopied",
        "searched_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self.searched_ms = now_ms
        """When the last search ended, monotonic."""
        self.dirty_ratio = 0.0
        """Of the dirtiest log that could be cleaned then."""
        self.overdue_ms = 0
        """For how long the cleaning of the most overdue log had been due then, by max.compaction.lag.ms."""
        self.buffer_utilization = 0.0
        """The share of the offset map that the last cleaning filled."""
        self.clean_time_ms = 0
        self.recopied = 0.0
        """Bytes written by bytes read."""

    def searched(self, dirty_ratio: float, overdue_ms: int, now_ms: int) -> None:
        self.dirty_ratio = dirty_ratio
        self.overdue_ms = overdue_ms
        self.searched_ms = now_ms

    def cleaned(self, stats: CleanerStats, duration_ms: int) -> None:
        self.buffer_utilization = stats.map_utilization
        self.clean_time_ms = duration_ms
        self.recopied = stats.bytes_written / max(stats.bytes_read, 1)
