"""The log of one partition: ports.Log on a Disk.

Duty: keep segments, epochs, producer state and offsets in agreement through append, read, truncation, rolling, retention
and closing. Must not know: who leads, who waits, which requests there are. One thread, synchronous. Lookups by time and
of aborted transactions are in lookup.py, opening and recovery in recovery.py.
Order of an append: sequence check, offsets and epoch stamped, epoch cache, roll, write, producer state. The high watermark is
the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.changes import change_of_many
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SYNC_FAILED_FILE,
    format_epochs,
)
from kafkacompat.log.flush import LogFlush, Syncs, new_names
from kafkacompat.log.index import MAX_RELATIVE_OFFSET, AbortedEntry
from kafkacompat.log.looks import SegmentsLook
from kafkacompat.log.reading import LogParts, ReadableLog
from kafkacompat.log.replay import apply_batch, follower_batches, marker_of, replay_segments
from kafkacompat.log.retention import count_deletable
from kafkacompat.log.rolling import roll_after_ms
from kafkacompat.log.segment import INDEX_INTERVAL_MOST, Segment
from kafkacompat.log.segment_list import DROPPED_AT_ONCE, DeleteLater, SegmentList
from kafkacompat.ports import AppendInfo, Buffer, LogRefused
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, stamp_offset_and_epoch
from kafkacompat.records.control import EndTransactionMarker
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Disk, File, TransactionTerms
    from kafkacompat.records.validated import ValidatedBatch

SYNCED_AT_ONCE = 64
"""Closed segments that one periodic flush of a log covers: opening more would hold the loop up."""


class PartitionLog(ReadableLog):
    """Grows, shrinks and is kept. On OSError from an append nothing has changed."""

    __slots__ = (
        "_config",
        "_indexes_full_from",
        "_randrange",
        "_roll_after_ms",
        "_rolled",
        "_segment_bytes",
        "_snapshots",
        "_truncations",
        "cleaned_to",
        "directory",
        "recovery_point",
        "syncs",
        "truncated",
    )

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
        """`delete_later(paths, delay_ms)` removes files some time later; without it they go at once.
        `mend_later` has a segment's damaged indexes built anew; without it that is done on the spot.
        `randrange` gives the jitter of rolling by time; without it there is none. `rolled` is told that a segment was closed.
        """
        mend = None if mend_later is None else partial(mend_later, self)
        segments = SegmentList(disk, directory, parts.segments, parts.cache, delete_later, mend)
        super().__init__(disk, topic_partition, topic_id, segments, parts, high_watermark)
        self.directory = directory
        self._snapshots = parts.snapshots
        self._randrange = randrange
        self._rolled = rolled
        self.recovery_point = parts.recovery_point
        self.syncs = Syncs(self._mark_unsynced)
        self.cleaned_to = -1
        """Where the cleaner will begin; -1 when it has never been here. `truncated` tells it that what it read is gone."""
        self.truncated = False
        self._truncations = 0
        self._state.on_high_watermark(self.high_watermark)
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.internal_segment_bytes or config.segment_bytes
        # An index gets an entry for every index.interval.bytes at most, so a smaller segment need not be asked.
        entries = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1)
        self._indexes_full_from = (entries - 1) * min(config.index_interval_bytes, INDEX_INTERVAL_MOST)
        self._draw_roll_time()

    # -- appending

    def append_as_leader(
        self, batch: ValidatedBatch, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        size = batch.size
        if size > self._segment_bytes:
            raise LogRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes does not fit a segment of {self._segment_bytes}",
            )
        producer_id = batch.producer_id
        marker: EndTransactionMarker | None = None
        if producer_id >= 0:
            if batch.is_control:
                marker = marker_of(batch.buffer)
            original = self._state.check(
                producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_offset_delta,
                is_transactional=batch.is_transactional,
                is_control=batch.is_control,
                coordinator_epoch=marker.coordinator_epoch if marker is not None else -1,
                transaction_version=0 if terms is None else terms.transaction_version,
                from_client=batch.base_sequence >= 0,
            )
            if original is not None:
                stamped = original.timestamp_ms if batch.log_append_time else -1
                return AppendInfo(original.first_offset, original.last_offset, stamped, True)
            if terms is not None and batch.is_transactional and marker is None:
                self._state.check_verified(producer_id, batch.producer_epoch, terms.verification_guard)
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        stamp_offset_and_epoch(batch.buffer, first_offset, leader_epoch)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start(leader_epoch, first_offset)
        if self._epochs.changed:
            self._write_epochs()
        timestamp_ms = batch.max_timestamp_ms
        segment = self._segment_for(size, timestamp_ms, first_offset, last_offset, now_ms)
        if marker is not None:
            segment.make_ready_for_markers()
        segment.append(batch.buffer, size, first_offset, last_offset, timestamp_ms)
        self.log_end_offset = last_offset + 1
        state = self._state
        if producer_id >= 0:
            if marker is None:
                if not batch.is_control:
                    state.apply_data(
                        producer_id,
                        batch.producer_epoch,
                        batch.base_sequence,
                        first_offset,
                        last_offset,
                        timestamp_ms,
                        batch.is_transactional,
                    )
            else:
                completed = state.apply_marker(
                    producer_id,
                    batch.producer_epoch,
                    marker.coordinator_epoch,
                    first_offset,
                    timestamp_ms,
                    marker.committed,
                )
                if completed is not None and not completed.committed:
                    entry = AbortedEntry(*completed[:3], state.stable_offset_after(completed))
                    segment.aborted.append(entry)
        state.end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, timestamp_ms if batch.log_append_time else -1)

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Raises LogRefused CORRUPT_MESSAGE for bytes that must be fetched again, OFFSET_OUT_OF_RANGE for offsets that
        do not follow. Batches of a later epoch than the follower's are left out, and a cut-off one at the end.
        """
        view = memoryview(records)
        run = list(follower_batches(view, leader_epoch, self.log_end_offset))
        first_offset = run[0].base_offset if run else self.log_end_offset
        while run:
            count = self._append_run(view, run)
            del run[:count]
        return AppendInfo(first_offset, self.log_end_offset - 1, -1)

    def _append_run(self, view: memoryview, run: list[BatchHeader]) -> int:
        """Append as many batches as the segment that takes the first one has room for; how many."""
        first = run[0]
        segment = self._segment_for(
            first.size, first.max_timestamp_ms, first.base_offset, first.last_offset, first.max_timestamp_ms
        )
        room = self._segment_bytes - segment.size
        count, size = 0, 0
        for header in run:
            if count and (
                size + header.size > room or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            ):
                break
            count += 1
            size += header.size
        taken = run[:count]
        if any(header.is_control for header in taken):
            segment.make_ready_for_markers()
        segment.append_many(view[first.position : first.position + size], taken)
        for header in taken:
            if header.magic == 2 and header.leader_epoch >= 0 and header.leader_epoch != self._latest_epoch:
                self.assign_epoch_start(header.leader_epoch, header.base_offset)
            batch = view[header.position : header.position + header.size] if header.is_control else None
            apply_batch(self._state, header, batch, segment)
        self.log_end_offset = taken[-1].last_offset + 1
        if self._epochs.changed:
            self._write_epochs()
        return count

    def _segment_for(
        self, size: int, timestamp_ms: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """The active segment, or a new one where Kafka would roll."""
        segment = self._segments.items[-1]
        config = self._config
        if segment.size:
            began = segment.rolling_timestamp_ms
            if began is None:
                began = self._began(segment)
            waited = now_ms - segment.created_ms if began is None or began < 0 else timestamp_ms - began
            if (
                segment.size > self._segment_bytes - size
                or waited > self._roll_after_ms
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or (segment.size > self._indexes_full_from and segment.is_full(config.segment_index_bytes))
            ):
                return self.roll(first_offset, now_ms)
        elif last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return self.roll(first_offset, now_ms)
        return segment

    def _began(self, segment: Segment) -> int | None:
        try:
            return segment.first_batch_timestamp()
        except BatchCorrupt:
            # Damage where nobody has looked: the segment is as old as this start.
            segment.rolling_timestamp_ms = -1
            return None

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a new active segment there; the producers' state at that offset is kept beside it."""
        old = self._segments.active
        segment = self._segments.roll(base_offset, self._config.index_interval_bytes, now_ms)
        if segment is not old:
            self._state.end_offset = base_offset
            try:
                self._snapshots.take(self._state)
            finally:
                # What is closed is closed, also where there is no room for the snapshot.
                self._draw_roll_time()
                self._rolled(self)
        return segment

    def _draw_roll_time(self) -> None:
        self._roll_after_ms = roll_after_ms(self._config, self._randrange)

    # -- offsets

    def set_high_watermark(self, offset: int) -> None:
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        # It is never below the log's start. Nothing is committed in a log that a power loss may take from its topic.
        if offset > self.high_watermark and self.is_anchored:
            self.high_watermark = offset
            self._state.on_high_watermark(offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Raises LogRefused OFFSET_OUT_OF_RANGE above the high watermark; False when it is no increment."""
        if offset > self.high_watermark:
            raise LogRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        # The epochs are trimmed with the segments: after a crash the log may begin where it did, for the checkpoint comes later.
        self.log_start_offset = offset
        return True

    # -- epochs

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None:
        """An epoch that begins at the log's end is written with its first batch or at the close: opening drops it anyway,
        and a start with thousands of partitions need not write thousands of files."""
        self._epochs.assign(epoch, start_offset)
        self._latest_epoch = self._epochs.latest_epoch()
        if start_offset < self.log_end_offset:
            self._write_epochs()

    def _write_epochs(self, *, sync: bool = False) -> None:
        """Mostly unsynced: recovery finds the epochs of unflushed batches in the batches, and a flush syncs the file."""
        self._latest_epoch = self._epochs.latest_epoch()
        if self._epochs.changed:
            self._disk.write_atomic(
                f"{self.directory}/{LEADER_EPOCH_FILE}", format_epochs(self._epochs.entries), sync=sync
            )
            self._epochs.changed = False

    # -- truncation

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything from an offset on. Below the log's start it starts anew there.

        At the end or beyond it only epochs go that begin there: led, but without a record. A batch that holds the offset
        in its middle goes whole, and the log ends before it: Kafka would claim to have what it cut. Of a log of very many
        segments one call drops only some, so that it holds nobody up: the log then ends above the offset, as if it had been cut
        there, and a follower that asks its leader again is told again.
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
        # Last: the log is whole without it. A start drops epochs that begin at its end, and finds later ones in the batches.
        self._write_epochs()

    def _restore_state(self, offset: int) -> None:
        """The producers' state as it was there. Who is not known any more, or never was, is not looked for: that would be to read
        a segment."""
        if not self._state.producers:
            self._snapshots.drop_outside(self.log_start_offset, offset)
            self._state.clear(offset)
            return
        self._snapshots.load_latest(self._state, self.log_start_offset, offset)
        replay_segments(self._state, self._segments.from_offset(self._state.end_offset), offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """As `truncate_to`, of everything: while that takes another step the log ends where this one has come to."""
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

    # -- upkeep

    def flush(self) -> None:
        """Make everything appended durable; blocks on the disk."""
        flush = self.begin_flush()
        flush.run()
        self.finish_flush(flush)

    def begin_flush(self, *, closed_only: bool = False) -> LogFlush:
        """What a worker thread must sync, as of now: segments from the recovery point on, the epochs, snapshots, new names.

        With closed_only the active segment is left out, and of very many closed ones all but the first SYNCED_AT_ONCE.
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
                # All of it was handed to the kernel as it was closed. There may be thousands: a worker opens them.
                paths += segment.names()
            elif segment.size:
                files.append(segment.file)
                paths += segment.write_indexes(create=False)
        paths += self._snapshots.paths_within(recovery_point, end_offset)
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
        """What a worker thread must sync before anything is committed in it; the directory above as well (flush.anchor)."""
        paths = [f"{self.directory}/{PARTITION_METADATA_FILE}"]
        return LogFlush(
            self._disk, self.syncs, self.directory, [], paths, [self.directory], 0, -1, self._truncations
        )

    def finish_flush(self, flush: LogFlush) -> None:
        """The flush ran: the recovery point moves, unless a truncation has come meanwhile: what lies there now may be other
        batches, which nobody has synced. Nor does it move any more once a sync of this log has failed."""
        if self.syncs.failure is not None:
            return
        if flush.directory == self.directory:
            self.is_anchored = True
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def look_for_retention(self, now_ms: int) -> SegmentsLook | None:
        """How old the oldest segments are, to be read in a worker thread; None when enough of that is known."""
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
        """The page cache may show what is not on the disk. Itself unsynced, the mark lasts as long as that does."""
        with suppress(OSError):  # then the disk is past telling
            self._disk.open(f"{self.directory}/{SYNC_FAILED_FILE}", create=True).close()

    def enforce_retention(self, now_ms: int) -> int:
        """Let go of segments that time, size or the log's start allow, as far as their age is known; how many went, DROPPED_AT_ONCE
        at most."""
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
        bases = [segment.base_offset for segment in self._segments.items[:count]]
        try:
            self._segments.drop_oldest(count, config.file_delete_delay_ms)
        finally:
            # Where the disk stops it, some have gone all the same.
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
        """A cleaned segment, of which these files were written, takes the place of neighbours; see SegmentList.replace."""
        self._segments.replace(replaced, suffixes, now_ms, self._config.file_delete_delay_ms)
        for segment in replaced[1:]:
            self._snapshots.remove(segment.base_offset)

    def close(self) -> None:
        """The last time index entry, the producers' state, everything durable, the files let go. Blocks. The end of it."""
        self._segments.active.become_inactive()
        self._state.end_offset = self.log_end_offset
        self._snapshots.take(self._state)
        self._write_epochs(sync=True)
        if self.recovery_point < self.log_end_offset or not self.is_anchored:
            self.flush()
        self.release()

    def relocate(self, directory: str) -> None:
        """Its directory was renamed. No flush may be under way: it would miss its files."""
        self.directory = directory
        self.is_anchored = False
        self._segments.relocate(directory)
        self._snapshots.relocate(directory)

    def release(self) -> None:
        """Let go of the files, writing nothing."""
        for segment in self._segments.items:
            segment.release()
