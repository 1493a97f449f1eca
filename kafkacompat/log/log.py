"""The log of one partition: ports.Log on a Disk.

PartitionLog keeps segments, epochs, producer state and offsets consistent through truncation, syncs, retention and the
close. Appends and rolls are in appending.py, reads in reading.py, opening and recovery in opening.py and recovery.py.
One thread, synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.appending import AppendingLog
from kafkacompat.log.changes import change_of_many
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SYNC_FAILED_FILE,
)
from kafkacompat.log.flush import LogFlush, Syncs, new_names
from kafkacompat.log.looks import SegmentsLook
from kafkacompat.log.reading import LogParts
from kafkacompat.log.replay import replay_segments
from kafkacompat.log.retention import count_deletable
from kafkacompat.log.segment import Segment
from kafkacompat.log.segment_list import DROPPED_AT_ONCE, DeleteLater, SegmentList

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Disk, File

SYNCED_AT_ONCE = 64
"""The most closed segments that one periodic flush of a log covers. Opening more would block the loop."""
RETIRED_AT_ONCE = 16
"""Segments of a log that goes whose index pages are freed at once. A full one has 1,300 pages, which take 0.1 ms."""


class PartitionLog(AppendingLog):
    """A partition's log with truncation, syncs and retention."""

    __slots__ = ("_truncations", "cleaned_to", "recovery_point", "syncs", "truncated")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        parts: LogParts,
        *,
        high_watermark: int = 0,
        delete_later: DeleteLater | None = None,
        mend_later: Callable[[PartitionLog, Segment], None] | None = None,
        randrange: Callable[[int], int] | None = None,
        rolled: Callable[[PartitionLog], None] = lambda log: None,
    ) -> None:
        """`delete_later(paths, delay_ms)` removes files later; without it they are removed at once. `mend_later` has a
        segment's damaged indexes rebuilt; without it they are rebuilt at once. `randrange` gives the jitter of rolling
        by time; without it there is none. `rolled` is called when a segment is closed."""
        mend = None if mend_later is None else partial(mend_later, self)
        segments = SegmentList(disk, directory, parts.segments, parts.cache, delete_later, mend)
        super().__init__(
            disk,
            directory,
            topic_partition,
            topic_id,
            config,
            parts,
            segments,
            high_watermark,
            randrange,
            partial(rolled, self),
        )
        self.recovery_point = parts.recovery_point
        self.syncs = Syncs(self._mark_unsynced)
        self.cleaned_to = -1
        """The offset where the cleaner continues; -1 if the log was never cleaned. `truncated` tells the cleaner that
        data it has read is gone."""
        self.truncated = False
        self._truncations = 0

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything from an offset on. An offset below the log's start leaves an empty log that starts there.

        At or above the log's end, only epochs without records are dropped. A batch that spans the offset is dropped
        whole and the log ends before it; Kafka would still claim to have the cut records. In a log with very many
        segments, one call drops only some of them, so that it does not block the loop. The log then ends above the
        offset, as if truncated there, and a follower asks its leader for the diverging epoch again.
        """
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            self._write_epochs()
            return
        if offset < self._segments.items[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        self._segments.look_at(offset)
        with change_of_many(f"the truncation of {self.topic_partition}"):
            offset = self._segments.truncate_to(offset, now_ms)
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self._after_truncation()
            self._restore_state(offset)
        self._state.on_high_watermark(self.high_watermark)
        # Written last, because the log is complete without this file. A start drops epochs that begin at the log's
        # end, and finds later epochs in the batches.
        self._write_epochs()

    def _restore_state(self, offset: int) -> None:
        """Restore the producers' state as of an offset. If no producer is known, older ones are not searched for,
        because that would read a segment."""
        if not self._state.producers:
            self._snapshots.drop_outside(self.log_start_offset, offset)
            self._state.clear(offset)
            return
        self._snapshots.load_latest(self._state, self.log_start_offset, offset)
        replay_segments(self._state, self._segments.from_offset(self._state.end_offset), offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything, like `truncate_to`. If that needs several calls, the log ends where this call has stopped."""
        if not self._segments.goes_in_one_step():
            self.truncate_to(self._segments.items[0].base_offset, now_ms)
            return
        with change_of_many(f"the truncation of {self.topic_partition}"):
            self._segments.start_anew(offset, self._config.index_interval_bytes, now_ms)
            self.log_start_offset = self.log_end_offset = offset
            self._epochs.clear()
            self._after_truncation()
            self._snapshots.remove_all()
        self._state.clear(offset)
        self.high_watermark = offset
        self._write_epochs()

    def _after_truncation(self) -> None:
        self.truncated = True
        self._truncations += 1
        self.cleaned_to = min(self.cleaned_to, self.log_end_offset)
        self._epochs.truncate_from_end(self.log_end_offset)
        self._latest_epoch = self._epochs.latest_epoch()
        self.high_watermark = max(min(self.high_watermark, self.log_end_offset), self.log_start_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)

    def flush(self) -> None:
        """Make everything appended durable. Blocks on the disk."""
        flush = self.begin_flush()
        flush.run()
        self.finish_flush(flush)

    def begin_flush(self, *, closed_only: bool = False) -> LogFlush:
        """What a worker thread must sync at this moment: the segments from the recovery point on, the epochs,
        snapshots and new names.

        With closed_only the active segment is left out, and only the first SYNCED_AT_ONCE closed segments are
        included.
        """
        files: list[File] = []
        paths = [f"{self.directory}/{LEADER_EPOCH_FILE}"]
        directories: list[str] = []
        newest = -1
        active, recovery_point = self._segments.active, self.recovery_point
        end_offset = self.log_end_offset
        for at, segment in enumerate(self._segments.from_offset(recovery_point)):
            if closed_only and (segment is active or at == SYNCED_AT_ONCE):
                end_offset = segment.base_offset
                break
            newest = segment.base_offset
            if newest >= recovery_point and not directories:
                directories = new_names(self.directory, is_first=segment is self._segments.items[0])
            if segment is not active:
                # The bytes of a closed segment were already handed to the kernel. There may be thousands of closed
                # segments, so the worker opens them.
                paths += segment.names()
            elif segment.size:
                files.append(segment.file)
                paths += segment.write_indexes(create=False)
        paths += self._snapshots.paths_within(recovery_point, end_offset) + self._snapshots.take_late(
            recovery_point
        )
        if not self.is_anchored:
            paths.append(f"{self.directory}/{PARTITION_METADATA_FILE}")
            directories = new_names(self.directory, is_first=True)
        return LogFlush(
            self._disk,
            self.syncs,
            self.directory,
            files,
            paths,
            directories,
            end_offset,
            newest,
            self._truncations,
        )

    def begin_anchoring(self) -> LogFlush:
        """What a worker thread must sync before anything in the log is committed. flush.anchor syncs the log directory
        above too."""
        paths = [f"{self.directory}/{PARTITION_METADATA_FILE}"]
        return LogFlush(
            self._disk, self.syncs, self.directory, [], paths, [self.directory], 0, -1, self._truncations
        )

    def finish_flush(self, flush: LogFlush) -> None:
        """Take over a finished flush and advance the recovery point.

        The recovery point stays if the log was truncated during the flush: the same offsets may now hold other
        batches, which are not synced. It also stays once a sync of this log has failed.
        """
        if self.syncs.failure is not None:
            return
        if flush.directory == self.directory:
            self.is_anchored = True
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def look_for_retention(self, now_ms: int) -> SegmentsLook | None:
        """A task that reads the age of the oldest segments in a worker thread. None if their ages are already known."""
        if not self._retains_by_time():
            return None
        retention_ms = self._config.retention_ms
        oldest = self._segments.items[: min(DROPPED_AT_ONCE, len(self._segments.items) - 1)]
        for segment in oldest:
            if not segment.knows_its_age():
                return SegmentsLook(self._disk, oldest, lambda age_ms: now_ms - age_ms <= retention_ms)
            if now_ms - segment.retention_timestamp_ms() <= retention_ms:
                break
        return None

    def _retains_by_time(self) -> bool:
        return self._config.delete and self._config.retention_ms >= 0

    def _mark_unsynced(self) -> None:
        """The page cache may contain data that is not on the disk. The mark is not synced either, and lasts as long as
        the page cache."""
        with suppress(OSError):  # if this fails too, nothing more can be recorded
            self._disk.open(f"{self.directory}/{SYNC_FAILED_FILE}", create=True).close()

    def enforce_retention(self, now_ms: int) -> int:
        """Delete segments that retention by time, size or log start allows, as far as their age is known. Returns
        their number, at most DROPPED_AT_ONCE."""
        config = self._config
        count = count_deletable(
            self._segments.facts(self.log_end_offset, by_time=self._retains_by_time()),
            total_bytes=self._segments.size(),
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            delete_policy=config.delete,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self._segments.items):
            self.roll(self.log_end_offset, now_ms)
        if self.has_unfinished_snapshot:
            # After a crash, the producers would be looked for in the segments from an older snapshot on.
            self._rolled()
            return 0
        bases = [segment.base_offset for segment in self._segments.items[:count]]
        try:
            self._segments.drop_oldest(count, config.file_delete_delay_ms)
        finally:
            # After a disk error some segments are gone too.
            self._after_dropping(bases)
        return count

    def _after_dropping(self, bases: Sequence[int]) -> None:
        self.log_start_offset = max(self.log_start_offset, self._segments.items[0].base_offset)
        self._epochs.truncate_from_start(self._segments.items[0].base_offset)
        self._write_epochs()
        for base_offset in bases:
            if base_offset < self._segments.items[0].base_offset:
                self._snapshots.remove(base_offset)

    def replace_segments(self, replaced: Sequence[Segment], suffixes: Sequence[str], now_ms: int) -> None:
        """Replace neighbouring segments by a cleaned one, whose files exist. See SegmentList.replace."""
        self._segments.replace(replaced, suffixes, now_ms, self._config.file_delete_delay_ms)
        for segment in replaced[1:]:
            self._snapshots.remove(segment.base_offset)

    def close(self) -> None:
        """Write the last time index entry and the producers' state, make everything durable, and close the files.
        Blocks. The log cannot be used afterwards."""
        self._segments.active.become_inactive()
        self._state.end_offset = self.log_end_offset
        self._snapshots.take(self._state)
        self._write_epochs(sync=True)
        if self.recovery_point < self.log_end_offset or not self.is_anchored:
            self.flush()
        self.release()

    def relocate(self, directory: str) -> None:
        """Adopt the new path after the directory was renamed. No flush may be in progress, because it would not find
        its files."""
        self.directory = directory
        self.is_anchored = False
        self._segments.relocate(directory)
        self._snapshots.relocate(directory)

    def release(self) -> None:
        """Close the files without writing anything, when the log is not used any more. What the cache of indexes has of older
        segments leaves it by and by: to look for all their pages would take long."""
        segments = self._segments.items
        for segment in segments[:-RETIRED_AT_ONCE]:
            segment.release()
        for segment in segments[-RETIRED_AT_ONCE:]:
            segment.retire()
