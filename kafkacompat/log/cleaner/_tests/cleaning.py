"""Helpers that fill compacted logs and clean them in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, open_log
from kafkacompat.log.cleaner.job import CleanerLimits
from kafkacompat.log.cleaner.log_cleaner import Cleaning, LogCleaner
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import Disk
from kafkacompat.records.batch import BatchHeader, build_batch, trusted_batch
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record

COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1500,
    index_interval_bytes=150,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
LIMITS = CleanerLimits(map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)
NAME = TopicPartition("t", 0)


class Futures:
    """The `futures` of a LogManager."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, UnifiedLog] = {}


class Manager:
    """A LogManager with one log, as far as the cleaner uses it."""

    def __init__(self, log: UnifiedLog) -> None:
        self.logs = {NAME: log}
        self.futures = Futures()
        self.closed = False
        self.failed: list[OSError] = []

    def get(self, name: TopicPartition) -> UnifiedLog | None:
        return self.logs.get(name)

    def partition_failed(self, name: TopicPartition, error: OSError) -> None:
        self.failed.append(error)

    def log_failed(self, log: UnifiedLog, error: OSError) -> None:
        self.failed.append(error)


def cleaner_of(
    disk: Disk, log: UnifiedLog, limits: CleanerLimits = LIMITS, notes: list[str] | None = None
) -> LogCleaner:
    manager: Any = Manager(log)
    return LogCleaner(
        manager, disk, lambda: limits, lambda: lambda size: None, [].append if notes is None else notes.append
    )


def carry_out(cleaning: Cleaning, now_ms: int) -> None:
    while not cleaning.done:
        cleaning.run()
        cleaning.finish(now_ms)


def clean(
    disk: Disk,
    log: UnifiedLog,
    now_ms: int = NOW_MS,
    limits: CleanerLimits = LIMITS,
    cleaner: LogCleaner | None = None,
) -> int:
    """Clean until nothing is dirty. Returns the number of cleanings."""
    cleaner = cleaner or cleaner_of(disk, log, limits)
    count = 0
    while (cleaning := cleaner.begin(now_ms)) is not None:
        carry_out(cleaning, now_ms)
        count += 1
        assert count < 1000
    return count


def new_log(disk: Disk, config: LogConfig = COMPACT) -> UnifiedLog:
    return open_log(disk, config)


def append(
    log: UnifiedLog,
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int = NOW_MS,
    **options: Any,
) -> int:
    """Append one batch and advance the high watermark. Returns its base offset."""
    records = [Record(i, timestamp_ms + i, key, value) for i, (key, value) in enumerate(pairs)]
    info = log.append_as_leader(trusted_batch(build_batch(records, **options)), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def batches(log: UnifiedLog) -> list[tuple[BatchHeader, bytes]]:
    return [(header, segment.read_batch(header)) for segment in log.segments for header in segment.headers()]


def records(log: UnifiedLog) -> list[tuple[int, Record]]:
    """Every data record of the log."""
    return [
        found
        for header, batch in batches(log)
        if not header.is_control and header.record_count
        for found in records_of(batch, header)
    ]


def last_values(log: UnifiedLog) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for _, record in records(log)}


__all__ = ["COMPACT", "DIRECTORY", "LIMITS", "NAME", "NOW_MS"]
