"""A log that grows: batches are appended, segments rolled, epochs begun, the high watermark and the log's start moved.

Order of an append: sequence check, offsets and epoch stamped, epoch cache, roll, write, producer state. Who leads, who waits, and
which requests there are is unknown here. The high watermark is the caller's.
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
    """On OSError from an append nothing has changed."""

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
        # An index gets an entry for every index.interval.bytes at most, so a smaller segment need not be asked.
        entries = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1)
        self._indexes_full_from = (entries - 1) * min(config.index_interval_bytes, INDEX_INTERVAL_MOST)
        self._draw_roll_time()

    def append_as_leader(
        self, batch: ValidatedBatch, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        if batch.size > self._segment_bytes:
            raise LogRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {batch.size} bytes does not fit a segment of {self._segment_bytes}",
            )
        marker = marker_of(batch.buffer) if batch.is_control and batch.producer_id >= 0 else None
        if batch.producer_id >= 0:
            original = self._check_producer(batch, marker, terms)
            if original is not None:
                stamped = original.timestamp_ms if batch.log_append_time else -1
                return AppendInfo(original.first_offset, original.last_offset, stamped, True)
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        stamp_offset_and_epoch(batch.buffer, first_offset, leader_epoch)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start(leader_epoch, first_offset)
        if self._epochs.changed:
            self._write_epochs()
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

    def _check_producer(
        self, batch: ValidatedBatch, marker: EndTransactionMarker | None, terms: TransactionTerms | None
    ) -> BatchMetadata | None:
        """What was appended before if the batch is there already. LogRefused where it does not follow."""
        original = self._state.check(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_offset_delta,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            coordinator_epoch=marker.coordinator_epoch if marker is not None else -1,
            transaction_version=0 if terms is None else terms.transaction_version,
            from_client=batch.base_sequence >= 0,
        )
        if original is None and terms is not None and batch.is_transactional and marker is None:
            self._state.check_verified(batch.producer_id, batch.producer_epoch, terms.verification_guard)
        return original

    def _update_producer(
        self,
        batch: ValidatedBatch,
        marker: EndTransactionMarker | None,
        first_offset: int,
        last_offset: int,
        segment: Segment,
    ) -> None:
        """What the batch, which is written, says of its producer and of its transaction."""
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
                self._rolled()
        return segment

    def _draw_roll_time(self) -> None:
        self._roll_after_ms = roll_after_ms(self._config, self._randrange)

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
