"""The metadata log on a real partition log: it takes built batches, shares one fsync among all that wait, and drops
old segments at a snapshot.

It adapts log/ to the driver. Roles are unknown here. Most syncs touch only the segment file, because a start after a
crash rebuilds the indexes and epochs from it. Every MiB, and with each new segment, a full flush also makes these and
the file name durable.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.config import LogConfig
from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from kafkacompat.log.checkpoint import PARTITION_METADATA_FILE, format_partition_metadata
from kafkacompat.log.log_loader import open_directory, trust_syncs_again
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import HalfDone, is_full, passes
from kafkacompat.raft.packing import MAX_BATCH_BYTES
from kafkacompat.raft.storage import METADATA_PARTITION, make_metadata_directory
from kafkacompat.records.batch import ValidatedBatch, parse_header

if TYPE_CHECKING:
    from kafkacompat.log.flush import LogFlush
    from kafkacompat.ports import Buffer, Clock, Disk, LogRead

FULL_FLUSH_BYTES = 1024 * 1024
"""Bytes written since the last full flush before the next sync includes indexes and epochs."""
ROLLED_AT_A_SNAPSHOT_BYTES = 256 * 1024
"""Size of the active segment from which on a snapshot ends it. A start checks every batch of all segments, and an idle
cluster writes two small ones a second: a segment that only its age ends would have a million."""


def metadata_log_config(segment_bytes: int, segment_ms: int) -> LogConfig:
    """The config from metadata.log.segment.bytes and .ms. Snapshots decide the retention."""
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=MAX_BATCH_BYTES,
        file_delete_delay_ms=0,
    )


@contextmanager
def _as_far_as_there_is_room(*, can_lack: bool = False) -> Iterator[None]:
    """Ignore a full disk in an operation that shortens the log. Remaining segments are deleted with the next snapshot. The
    epoch file is written with the next batch; a start does not need it, because it checks every batch.

    `can_lack`: ignore a lack of descriptors as well, where nothing counts on the operation.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, HalfDone) or not (is_full(error) or (can_lack and passes(error))):
            raise


class PartitionMetadataLog:
    """raft.contracts.MetadataLog over a UnifiedLog."""

    __slots__ = ("_bytes_since_full_flush", "_clock", "_flush", "_named", "log")

    def __init__(self, log: UnifiedLog, clock: Clock) -> None:
        self.log = log
        self._clock = clock
        self._bytes_since_full_flush = 0
        self._flush: LogFlush | None = None
        self._named = -1
        """Base offset of the newest segment whose name a full flush has made durable."""

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def latest_epoch(self) -> int:
        return self.log.latest_epoch()

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        return self.log.read(offset, max_bytes, upper_bound_offset, minimum_one_batch)

    def set_high_watermark(self, offset: int) -> None:
        self.log.set_high_watermark(offset)

    def truncate_to(self, offset: int) -> None:
        self._named = -1
        with _as_far_as_there_is_room():
            self.log.truncate_to(offset, self._clock.now_ms())

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._named = -1
        with _as_far_as_there_is_room():
            self.log.truncate_fully_and_start_at(offset, self._clock.now_ms())

    def append_batch(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        self.log.append_as_leader(ValidatedBatch.of(batch, parse_header(batch)), epoch, now_ms)
        self._bytes_since_full_flush += len(batch)

    def append_fetched(self, batches: Buffer, epoch: int) -> None:
        self.log.append_as_follower(batches, epoch)
        self._bytes_since_full_flush += len(batches)

    def begin_sync(self) -> Callable[[], None]:
        log = self.log
        newest = log.segments[-1].base_offset
        if self._bytes_since_full_flush >= FULL_FLUSH_BYTES or newest != self._named:
            self._bytes_since_full_flush = 0
            self._flush = log.begin_flush()
            return self._flush.run
        self._flush = None
        first = log.recovery_point
        files = [
            segment.file
            for segment, following in zip(log.segments, [*log.segments[1:], None], strict=True)
            if following is None or following.base_offset > first
        ]

        def sync() -> None:
            for file in files:
                file.sync()

        return partial(log.syncs.carry_out, sync)

    def finish_sync(self) -> None:
        if self._flush is not None:
            self.log.finish_flush(self._flush)
            self._named = self._flush.newest_segment
            self._flush = None

    def drop_below(self, offset: int) -> None:
        log, now_ms = self.log, self._clock.now_ms()
        log.increment_log_start_offset(offset)
        with _as_far_as_there_is_room(can_lack=True):
            if offset == log.log_end_offset or log.segments[-1].size >= ROLLED_AT_A_SNAPSHOT_BYTES:
                # The active segment is never dropped. A new one allows the old bytes to be deleted, at the latest with the
                # snapshot after the next one.
                log.roll(log.log_end_offset, now_ms)
        # To delete takes no room, and makes it.
        with _as_far_as_there_is_room(can_lack=True):
            while log.enforce_retention(now_ms):
                pass

    def close(self) -> None:
        """Flush everything and close. Blocks on the disk."""
        self.log.flush()
        self.log.close()


def open_metadata_log(
    disk: Disk,
    metadata_directory: str,
    config: LogConfig,
    clock: Clock,
    *,
    clean: bool,
    recovery_point: int = 0,
    note: Callable[[str], None] = lambda text: None,
) -> PartitionMetadataLog:
    """Open or create `<metadata_directory>/__cluster_metadata-0`. `clean`: the directory had the clean-shutdown mark.

    `note` is called with each problem that recovery found.
    """
    directory = posixpath.join(metadata_directory, METADATA_PARTITION)
    make_metadata_directory(disk, directory)
    parts = open_directory(
        disk, directory, config, clock.now_ms(), clean=clean, recovery_point=recovery_point, note=note
    )
    path = posixpath.join(directory, PARTITION_METADATA_FILE)
    if not disk.exists(path):
        disk.write_atomic(path, format_partition_metadata(METADATA_TOPIC_ID))
    trust_syncs_again(disk, directory)
    log = UnifiedLog(disk, directory, TopicPartition(METADATA_TOPIC, 0), METADATA_TOPIC_ID, config, parts)
    return PartitionMetadataLog(log, clock)
