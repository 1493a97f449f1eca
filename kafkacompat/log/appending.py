"""Appending to a log: batches, segment rolls, new epochs, and moves of the high watermark and the log start.

An append runs in this order: check the sequence, stamp offsets and epoch, update the epoch cache, roll, write, update
the producer state. This module does not know about leaders, waiting requests or request types. The caller decides the
high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    format_epochs,
)
from kafkacompat.log.index import MAX_RELATIVE_OFFSET
from kafkacompat.log.reading import LogParts, ReadableLog
from kafkacompat.log.replay import apply_batch, follower_batches, marker_of
from kafkacompat.log.rolling import roll_after_ms
from kafkacompat.log.segment import Segment
from kafkacompat.log.segment_batches import INDEX_INTERVAL_MOST
from kafkacompat.log.segment_list import SegmentList
from kafkacompat.log.transaction_index import AbortedTxn
from kafkacompat.ports import AppendInfo, Buffer, LogRefused
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, stamp_offset_and_epoch
from kafkacompat.records.control import EndTransactionMarker
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.producer_state import BatchMetadata
    from kafkacompat.ports import Disk, TransactionTerms
    from kafkacompat.records.validated import ValidatedBatch


class AppendingLog(ReadableLog):
    """The appending part of a log. An append that raises OSError leaves the log unchanged."""

    __slots__ = (
        "_config",
        "_indexes_full_from",
        "_randrange",
        "_roll_after_ms",
        "_rolled",
        "_segment_bytes",
        "_snapshots",
        "directory",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        parts: LogParts,
        segments: SegmentList,
        high_watermark: int,
        randrange: Callable[[int], int] | None,
        rolled: Callable[[], None],
    ) -> None:
        super().__init__(disk, topic_partition, topic_id, segments, parts, high_watermark)
        self.directory = directory
        self._snapshots = parts.snapshots
        self._randrange = randrange
        self._rolled = rolled
        self._state.on_high_watermark(self.high_watermark)
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.internal_segment_bytes or config.segment_bytes
        # An index gets at most one entry per index.interval.bytes. Below this segment size the index cannot be full,
        # so it is not checked.
        entries = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1)
        self._indexes_full_from = (entries - 1) * min(config.index_interval_bytes, INDEX_INTERVAL_MOST)
        self._draw_roll_time()

    def append_as_leader(
        self, batch: ValidatedBatch, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        if batch.size > self._segment_bytes:
            raise self._too_large(batch)
        marker = marker_of(batch.buffer) if batch.is_control and batch.producer_id >= 0 else None
        if batch.producer_id >= 0:
            original = self._check_producer(batch, marker, terms)
            if original is not None:
                return _appended_before(original, batch)
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        stamp_offset_and_epoch(batch.buffer, first_offset, leader_epoch)
        if leader_epoch != self._latest_epoch or self._epochs.changed:
            self._begin_epoch(leader_epoch, first_offset)
        timestamp_ms = batch.max_timestamp_ms
        segment = self._segment_for(batch.size, timestamp_ms, first_offset, last_offset, now_ms)
        if marker is not None:
            segment.make_ready_for_markers()
        segment.append(batch.buffer, batch.size, first_offset, last_offset, timestamp_ms)
        self.log_end_offset = last_offset + 1
        if batch.producer_id >= 0:
            self._update_producer(batch, marker, first_offset, last_offset, segment)
        self._state.end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, timestamp_ms if batch.log_append_time else -1)

    def _too_large(self, batch: ValidatedBatch) -> LogRefused:
        text = f"a batch of {batch.size} bytes does not fit a segment of {self._segment_bytes}"
        return LogRefused(ErrorCode.RECORD_LIST_TOO_LARGE, text)

    def _check_producer(
        self, batch: ValidatedBatch, marker: EndTransactionMarker | None, terms: TransactionTerms | None
    ) -> BatchMetadata | None:
        """Return the earlier append if the batch is a duplicate. Raises LogRefused if the sequence does not follow."""
        original = self._state.check(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_offset_delta,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            coordinator_epoch=marker.coordinator_epoch if marker is not None else -1,
            transaction_version=0 if terms is None else terms.transaction_version,
            from_client=batch.base_sequence >= 0 and (terms is None or terms.from_client),
        )
        if original is None and terms is not None and batch.is_transactional and marker is None:
            self._state.check_verified(batch.producer_id, batch.producer_epoch, terms.verification_guard)
        return original

    def _begin_epoch(self, leader_epoch: int, first_offset: int) -> None:
        """Add the epoch to the cache and write the file before the first batch of the epoch is written."""
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start(leader_epoch, first_offset)
        if self._epochs.changed:
            self._write_epochs()

    def _update_producer(
        self,
        batch: ValidatedBatch,
        marker: EndTransactionMarker | None,
        first_offset: int,
        last_offset: int,
        segment: Segment,
    ) -> None:
        """Update producer and transaction state from a batch that is already written."""
        state, timestamp_ms = self._state, batch.max_timestamp_ms
        if marker is not None:
            completed = state.apply_marker(
                batch.producer_id,
                batch.producer_epoch,
                marker.coordinator_epoch,
                first_offset,
                timestamp_ms,
                marker.committed,
            )
            if completed is not None and not completed.committed:
                segment.aborted.append(AbortedTxn(*completed[:3], state.stable_offset_after(completed)))
        elif not batch.is_control:
            state.apply_data(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                first_offset,
                last_offset,
                timestamp_ms,
                batch.is_transactional,
            )

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append batches unchanged. Batches of an epoch later than `leader_epoch` and an incomplete last batch are
        skipped.

        Raises LogRefused: CORRUPT_MESSAGE if the bytes must be fetched again, OFFSET_OUT_OF_RANGE if the offsets do
        not follow.
        """
        view = memoryview(records)
        run = list(follower_batches(view, leader_epoch, self.log_end_offset))
        first_offset = run[0].base_offset if run else self.log_end_offset
        while run:
            count = self._append_run(view, run)
            del run[:count]
        return AppendInfo(first_offset, self.log_end_offset - 1, -1)

    def _append_run(self, view: memoryview, run: list[BatchHeader]) -> int:
        """Append the batches that fit into the segment of the first one. Returns their number."""
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
        """The active segment, or a new one if Kafka would roll here."""
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
            # An unchecked segment is damaged: its age counts from this start.
            segment.rolling_timestamp_ms = -1
            return None

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a new active segment at `base_offset`. A snapshot of the producers' state at that offset is written
        beside it, later if there are many (`go_on_with_snapshot`)."""
        old = self._segments.active
        segment = self._segments.roll(base_offset, self._config.index_interval_bytes, now_ms)
        if segment is not old:
            self._state.end_offset = base_offset
            try:
                self._snapshots.begin(self._state)
            finally:
                # What is closed stays closed, even if the disk has no room for the snapshot.
                self._draw_roll_time()
                self._rolled()
        return segment

    @property
    def has_unfinished_snapshot(self) -> bool:
        return self._snapshots.is_unfinished(self._state)

    def go_on_with_snapshot(self) -> bool:
        """Do a step of the last roll's snapshot. Returns whether nothing of it is left. Raises OSError."""
        return self._snapshots.go_on(self._state)

    def _draw_roll_time(self) -> None:
        self._roll_after_ms = roll_after_ms(self._config, self._randrange)

    def set_high_watermark(self, offset: int) -> None:
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        # The high watermark is never below the log start. It stays put until the log is anchored, because a power loss
        # could still separate the log from its topic.
        if offset > self.high_watermark and self.is_anchored:
            self.high_watermark = offset
            self._state.on_high_watermark(offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """Return False if the offset is not above the log start. Raises LogRefused OFFSET_OUT_OF_RANGE above the high
        watermark."""
        if offset > self.high_watermark:
            raise LogRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        # The epochs are trimmed later, with the segments. The checkpoint is also written later, so after a crash the
        # log may begin at its old start.
        self.log_start_offset = offset
        return True

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None:
        """Record that an epoch starts at an offset. An epoch at the log's end is written with its first batch or at
        the close: opening drops it anyway, and a start with thousands of partitions would have to write thousands of
        files."""
        self._epochs.assign(epoch, start_offset)
        self._latest_epoch = self._epochs.latest_epoch()
        if start_offset < self.log_end_offset:
            self._write_epochs()

    def _write_epochs(self, *, sync: bool = False) -> None:
        """Write the epoch file, usually without a sync: recovery finds the epochs of unflushed batches in the batches
        themselves, and a flush syncs the file."""
        self._latest_epoch = self._epochs.latest_epoch()
        if self._epochs.changed:
            self._disk.write_atomic(
                f"{self.directory}/{LEADER_EPOCH_FILE}", format_epochs(self._epochs.entries), sync=sync
            )
            self._epochs.changed = False


def _appended_before(original: BatchMetadata, batch: ValidatedBatch) -> AppendInfo:
    """The answer to a duplicate batch: the same as for the first append."""
    stamped = original.timestamp_ms if batch.log_append_time else -1
    return AppendInfo(original.first_offset, original.last_offset, stamped, True)
