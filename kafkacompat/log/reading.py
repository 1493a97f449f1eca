"""Read-only operations on a partition's log, and the state they use.

They cover offsets, reads, and lookups by time and epoch. Appends are in appending.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import OffsetAndEpoch, TopicPartition, Uuid
from kafkacompat.log.index import MAX_OFFSET
from kafkacompat.log.lookup import TimestampLookup, aborted_transactions
from kafkacompat.ports import (
    EMPTY_RECORDS,
    AbortedTransaction,
    LogRead,
    LogRefused,
    ProducerStateEntry,
    VerificationGuard,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.log.epoch_cache import LeaderEpochCache
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.log.segment import Segment
    from kafkacompat.log.segment_list import SegmentList
    from kafkacompat.log.snapshots import SnapshotStore
    from kafkacompat.ports import Disk


class LogParts:
    """The results of opening a directory (recovery.open_directory)."""

    __slots__ = (
        "cache",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "segments",
        "snapshots",
        "state",
    )

    def __init__(
        self,
        segments: list[Segment],
        epochs: LeaderEpochCache,
        state: ProducerStateManager,
        snapshots: SnapshotStore,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        cache: IndexCache,
    ) -> None:
        self.segments = segments
        self.epochs = epochs
        self.state = state
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.cache = cache


class ReadableLog:
    """The readable part of a log. Offsets are absolute, sizes in bytes. Raises LogRefused for expected refusals, and
    OSError from the disk."""

    __slots__ = (
        "_disk",
        "_epochs",
        "_latest_epoch",
        "_segments",
        "_state",
        "high_watermark",
        "is_anchored",
        "log_end_offset",
        "log_start_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        segments: SegmentList,
        parts: LogParts,
        high_watermark: int,
    ) -> None:
        self._disk = disk
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.is_anchored = True
        """Whether the log's directory and topic id are durable. Without them its records would belong to no topic
        after a power loss."""
        self._segments = segments
        self._epochs = parts.epochs
        self._latest_epoch = parts.epochs.latest_epoch()
        self._state = parts.state
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        # A high watermark out of range belongs to another log, or to data that the disk has lost. One that is too low
        # does no harm.
        is_ours = self.log_start_offset <= high_watermark <= self.log_end_offset
        self.high_watermark = high_watermark if is_ours else self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._state.first_unstable_offset
        if not 0 <= unstable < self.high_watermark:
            return self.high_watermark
        # Retention or DeleteRecords may move the start above the first record of an open transaction.
        return max(unstable, self.log_start_offset)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments.items

    @property
    def producer_count(self) -> int:
        """Producer ids that the log remembers."""
        return len(self._state.producers)

    def oldest_open_timestamp_ms(self) -> int:
        """When the producer of the earliest open transaction has last written. -1: none is open."""
        return self._state.oldest_open_timestamp_ms()

    @property
    def producer_state(self) -> ProducerStateManager:
        return self._state

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs, ascending."""
        return self._epochs.entries

    def latest_epoch(self) -> int:
        return self._latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        return self._epochs.epoch_for_offset(offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise LogRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.log_end_offset}]",
            )
        if offset >= upper_bound_offset:
            return LogRead(EMPTY_RECORDS)
        return self._segments.read(
            offset, max_bytes, upper_bound_offset, minimum_one_batch, self.log_end_offset
        )

    def readable_bytes(self, offset: int, upper_bound_offset: int) -> int:
        if not self.log_start_offset <= offset < upper_bound_offset:
            return 0
        return self._segments.readable_bytes(offset, upper_bound_offset, self.log_end_offset)

    def aborted_transactions(
        self, fetch_offset: int, upper_bound_offset: int, most: int = MAX_OFFSET
    ) -> tuple[list[AbortedTransaction], int]:
        return aborted_transactions(self._segments, fetch_offset, upper_bound_offset, most)

    def begin_lookup(self, timestamp_ms: int | None) -> TimestampLookup:
        """A search for the first record at or after a timestamp, to run in a worker thread. None searches for the
        largest timestamp."""
        return TimestampLookup(self._disk, self._segments, timestamp_ms, self.log_start_offset)

    def finish_lookup(self, lookup: TimestampLookup) -> bool:
        """Take over the timestamps that a search has read. Returns False if its result may be outdated: search again.

        Raises LogRefused KAFKA_STORAGE_ERROR while damaged indexes are rebuilt, and the error of the search itself.
        """
        for segment, timestamp_ms, offset in lookup.learned:
            segment.note_largest_timestamp(timestamp_ms, offset)
        if lookup.changes != self._segments.changes or lookup.moved:
            return False
        if lookup.damaged is not None:
            lookup.damaged.report_damage()
            return False
        if lookup.error is not None:
            raise lookup.error
        return lookup.found is None or lookup.found.offset >= self.log_start_offset

    def size_bytes(self) -> int:
        return self._segments.size()

    def segment_base_offset(self, offset: int) -> int:
        return self._segments.base_of(offset)

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        return self._state.start_verification(producer_id, epoch, first_sequence, bumps_epochs, now_ms)

    def active_producers(self) -> Iterator[ProducerStateEntry]:
        """See `ProducerStateManager.active`."""
        return self._state.active()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """See `ProducerStateManager.expire`."""
        return self._state.expire(now_ms, expiration_ms)
