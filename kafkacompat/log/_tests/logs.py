"""Helpers that make logs and batches in tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.ports import Disk, FileSlice, LogRead, TimestampOffset
from kafkacompat.records.batch import ValidatedBatch, build_batch, iterate_batches, trusted_batch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record

NOW_MS = 1_700_000_000_000
DIRECTORY = "/logs/t-0"
TOPIC_ID = b"\x07" * 16
NAME = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=150)


def open_log(
    disk: Disk, config: LogConfig = SMALL, *, clean: bool = False, directory: str = DIRECTORY, **options: int
) -> UnifiedLog:
    high_watermark = options.pop("high_watermark", 0)
    parts = open_directory(disk, directory, config, NOW_MS, clean=clean, **options)
    return UnifiedLog(
        disk, directory, TopicPartition("t", 0), TOPIC_ID, config, parts, high_watermark=high_watermark
    )


def look_up(log: UnifiedLog, timestamp_ms: int | None) -> TimestampOffset | None:
    """Run a lookup as a worker thread and the loop do. None finds the first record with the largest timestamp."""
    for _ in range(3):
        lookup = log.begin_lookup(timestamp_ms)
        lookup.run()
        if log.finish_lookup(lookup):
            return lookup.found
    raise AssertionError("the log does not stand still")


def config(**changes: object) -> LogConfig:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


TIERED = config(remote_storage_enable=True, local_retention_bytes=1, retention_bytes=-1, retention_ms=-1)


def batch_of(
    values: Sequence[bytes], timestamp_ms: int = NOW_MS, step_ms: int = 1, **options: object
) -> ValidatedBatch:
    records = [Record(i, timestamp_ms + i * step_ms, b"k", value) for i, value in enumerate(values)]
    return trusted_batch(build_batch(records, **options))  # type: ignore[arg-type]


def marker(
    producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> ValidatedBatch:
    return trusted_batch(
        build_end_transaction_marker(
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=NOW_MS,
        )
    )


def values_in(read: LogRead) -> list[tuple[int, bytes | None]]:
    """(offset, value) of the complete batches of a read."""
    data = read.records.read() if isinstance(read.records, FileSlice) else read.records
    found = []
    for header in iterate_batches(data):
        batch = data[header.position : header.position + header.size]
        if not header.is_control:
            found += [(offset, record.value) for offset, record in records_of(batch, header)]
    return found


def all_values(log: UnifiedLog) -> list[tuple[int, bytes | None]]:
    """All records from the log's start on, read as a consumer would."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 700, log.log_end_offset, True)
        data = read.records.read() if isinstance(read.records, FileSlice) else b""
        if not data:
            break
        found += [item for item in values_in(read) if item[0] >= offset]
        offset = [header.last_offset for header in iterate_batches(data)][-1] + 1
    return found


def index_files(disk: Disk, directory: str = DIRECTORY) -> dict[str, bytes]:
    suffixes = (".index", ".timeindex", ".txnindex")
    return {
        name: disk.read_bytes(f"{directory}/{name}")
        for name in disk.list_directory(directory)
        if name.endswith(suffixes)
    }


def open_tiered(
    disk: Disk,
    settings: LogConfig = TIERED,
    *,
    topic: str = "t",
    clean: bool = True,
    log_start_offset: int | None = None,
    high_watermark: int = 0,
) -> UnifiedLog:
    parts = open_directory(
        disk,
        DIRECTORY,
        SMALL,
        NOW_MS,
        clean=clean,
        log_start_offset=log_start_offset or 0,
        may_be_tiered=log_start_offset is not None,
    )
    name = TopicPartition(topic, 0)
    services = LogServices(remote_storage=True)
    log = UnifiedLog(disk, DIRECTORY, name, TOPIC_ID, SMALL, parts, services, high_watermark=high_watermark)
    log.config = settings
    return log


def fill(log: UnifiedLog, segments: int = 4) -> list[int]:
    """Ten records a segment. Returns the base offsets of the segments."""
    for number in range(segments):
        if number:
            log.roll(log.log_end_offset, NOW_MS)
        batch = batch_of([b"x"] * 10, NOW_MS, producer_id=5, producer_epoch=0, base_sequence=number * 10)
        log.append_as_leader(batch, number // 2, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    return [segment.base_offset for segment in log.segments]
