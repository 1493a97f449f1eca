"""The log cleaner: LogCleaner and LogCleanerManager of Kafka's MBeans."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from kafkacompat.log.cleaner.candidates import first_dirty_offset
from kafkacompat.metrics.families import Families, counter, gauge, gauges, mbean_value

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.log_cleaner import LogCleaner
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.unified_log import UnifiedLog


def cleaner_families(cleaner: LogCleaner, manager: LogManager, moved_bytes: int, now_ms: int) -> Families:
    """`moved_bytes`: what the cleaner has read and written. `now_ms` is monotonic."""
    yield counter(
        "kafka_utils_throttler_cleaner_io_count",
        "Bytes that the cleaner has read and written (log.cleaner.io.max.bytes.per.second).",
        moved_bytes,
    )
    meter, name = cleaner.meter, "kafka_log_logcleaner_"
    yield gauge(
        f"{name}max_buffer_utilization_percent",
        "Share of the offset map that the last cleaning filled, in percent.",
        int(100 * meter.buffer_utilization),
    )
    yield gauge(
        f"{name}max_clean_time_secs",
        "Time of the last cleaning, in seconds.",
        meter.clean_time_ms // 1000,
    )
    yield gauge(
        f"{name}cleaner_recopy_percent",
        "Bytes that the last cleaning wrote, in percent of those that it read.",
        int(100 * meter.recopied),
    )
    yield gauge(
        f"{name}max_compaction_delay_secs",
        "For how long the cleaning of the most overdue log is due (max.compaction.lag.ms), in seconds.",
        meter.overdue_ms // 1000,
    )
    name = "kafka_log_logcleanermanager_"
    yield gauge(
        f"{name}max_dirty_percent",
        "Dirty share of the dirtiest log that may be cleaned, in percent.",
        int(100 * meter.dirty_ratio),
    )
    yield gauge(
        f"{name}time_since_last_run_ms",
        "Time since the last search for logs to clean.",
        now_ms - meter.searched_ms,
    )
    homes = (manager.directory_of(name) for name in cleaner.uncleanable)
    counts = Counter(home.path for home in homes if home is not None)
    dirty: Counter[str] = Counter()
    for partition, log in cleaner.uncleanable.items():
        home = manager.directory_of(partition)
        if home is not None:
            dirty[home.path] += _dirty_bytes(log)
    yield gauges(
        f"{name}uncleanable_partitions_count",
        "Partitions that the cleaner cannot read and leaves as they are.",
        [
            ({"logDirectory": mbean_value(each.path)}, counts[each.path])
            for each in manager.directories
            if each.online
        ],
    )
    yield gauges(
        f"{name}uncleanable_bytes",
        "Bytes of these partitions that are not cleaned.",
        [
            ({"logDirectory": mbean_value(each.path)}, dirty[each.path])
            for each in manager.directories
            if each.online
        ],
    )


def _dirty_bytes(log: UnifiedLog) -> int:
    """Of the closed segments."""
    first = first_dirty_offset(log)
    return sum(segment.size for segment, following in pairwise(log.segments) if following.base_offset > first)
