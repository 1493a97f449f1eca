"""The log of one partition: ports.Log on a Disk.

UnifiedLog keeps segments, epochs, producer state and offsets consistent through appends, rolls, truncation, syncs, retention
and the close. An append runs in this order: check the sequence, stamp offsets and epoch, update the epoch cache, roll, write,
update the producer state. The caller decides the high watermark. Leaders, waiting requests and request types are unknown
here. Opening and recovery are in opening.py and log_loader.py. One thread, synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.compiled import require_switched_on
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import INTERNAL_TOPICS, OffsetAndEpoch, TopicPartition, Uuid
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    SYNC_FAILED_FILE,
    format_epochs,
)
from kafkacompat.log.disk import RealFile
from kafkacompat.log.flush import LogFlush, Syncs, new_names
from kafkacompat.log.index import MAX_OFFSET, MAX_RELATIVE_OFFSET, AbortedTxn, Index, OffsetIndex, TimeIndex
from kafkacompat.log.leader_epoch_file_cache import LeaderEpochFileCache
from kafkacompat.log.log_segment import LOG_SUFFIX, TAIL_BATCHES, LogSegment
from kafkacompat.log.lookup import TimestampLookup, aborted_transactions
from kafkacompat.log.producer_snapshots import decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import (
    PRODUCER_IDS_MAX,
    RETAINED_BATCHES,
    BatchMetadata,
    Producer,
    ProducerStateManager,
    Verifications,
)
from kafkacompat.log.replay import (
    apply_batch,
    follower_batches,
    made_snapshot,
    marker_of,
    replay_in_pieces,
)
from kafkacompat.log.retention import SegmentAges, count_deletable, count_tiered
from kafkacompat.log.segment_indexes import SegmentIndexes
from kafkacompat.log.segment_list import DROPPED_AT_ONCE, DeleteLater, SegmentList, change_of_many
from kafkacompat.ports import (
    EMPTY_RECORDS,
    AbortedTransaction,
    AppendInfo,
    Buffer,
    LogRead,
    LogRefused,
    ProducerStateEntry,
    VerificationGuard,
    is_full,
)
from kafkacompat.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    STAMP,
    BatchCorrupt,
    BatchHeader,
    crc_of,
)
from kafkacompat.records.control import EndTransactionMarker, build_end_transaction_marker
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.log.producer_snapshots import SnapshotStore
    from kafkacompat.meters import Histogram
    from kafkacompat.ports import Disk, File, Log, TransactionTerms
    from kafkacompat.records.batch import ValidatedBatch
    from kafkacompat.tasks import Work

NEVER_TIERED = INTERNAL_TOPICS | {"__remote_log_metadata"}
"""Topics that stay local, whatever their settings are."""
FOLLOWS_RETENTION = -2
"""local.retention.ms or local.retention.bytes that is the same as retention.ms or retention.bytes."""
SYNCED_AT_ONCE = 64
"""The most closed segments that one periodic flush of a log covers. Opening more would block the loop."""
RETIRED_AT_ONCE = 16
"""Segments of a log that goes whose index pages are freed at once. A full one has 1,300 pages, which take 0.1 ms."""


@dataclass(frozen=True, slots=True)
class LogServices:
    """What the logs of a node have together. The defaults are for a log that is alone."""

    delete_later: DeleteLater | None = None
    """Removes files after a delay in ms. Without it they are removed at once."""
    rebuild_later: Callable[[UnifiedLog, LogSegment], None] | None = None
    """Has a segment's damaged indexes rebuilt. Without it they are rebuilt at once."""
    randrange: Callable[[int], int] | None = None
    """Gives the jitter of rolling by time. Without it there is none."""
    rolled: Callable[[UnifiedLog], None] = lambda log: None
    """Called when a segment of a log is closed."""
    flush_times_ms: Histogram | None = None
    """Takes the times of flushes. None if nobody reads them."""
    producer_ids_max: int = PRODUCER_IDS_MAX
    """Producer ids that a log remembers."""
    remote_storage: bool = False
    """Whether the node has a remote storage (remote.log.storage.system.enable)."""


ALONE = LogServices()


class ProducersAsOf(NamedTuple):
    """The producers' state at the end of a truncation, for as long as the log has the same basis (`_basis`)."""

    basis: tuple[object, ...]
    offset: int
    state: ProducerStateManager


class LogParts:
    """The results of opening a directory (recovery.open_directory)."""

    __slots__ = (
        "cache",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "names_are_durable",
        "recovery_point",
        "segments",
        "snapshots",
        "state",
    )

    def __init__(
        self,
        segments: list[LogSegment],
        epochs: LeaderEpochFileCache,
        state: ProducerStateManager,
        snapshots: SnapshotStore,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        cache: IndexCache,
        *,
        names_are_durable: bool,
    ) -> None:
        """`names_are_durable`: a clean stop has synced the names of all files."""
        self.segments = segments
        self.epochs = epochs
        self.state = state
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.cache = cache
        self.names_are_durable = names_are_durable


MARKERS_AT_ONCE = 500
"""That end transactions of a mirror's source. Each takes 20 microseconds."""


class UnifiedLog:
    """Offsets are absolute, sizes in bytes. Raises LogRefused for expected refusals, and OSError from the disk. An append that
    raises OSError leaves the log unchanged."""

    __slots__ = (
        "_bounded",
        "_closed_synced_to",
        "_config",
        "_disk",
        "_epochs",
        "_has_remote_storage",
        "_index_paths",
        "_last_offset",
        "_latest_epoch",
        "_latest_ms",
        "_names",
        "_names_synced",
        "_randrange",
        "_roll_after_ms",
        "_rolled",
        "_room",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "_state",
        "_truncations",
        "cleaned_to",
        "directory",
        "high_watermark",
        "highest_offset_in_remote_storage",
        "is_durable",
        "is_tiered",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "syncs",
        "topic_id",
        "topic_partition",
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
        services: LogServices = ALONE,
        *,
        high_watermark: int = 0,
        is_durable: bool = True,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.is_durable = is_durable
        """Whether the log's directory and topic id are durable. Without them its records would belong to no topic
        after a power loss."""
        rebuild_later = None if services.rebuild_later is None else partial(services.rebuild_later, self)
        self._segments = SegmentList(
            disk, directory, parts.segments, parts.cache, services.delete_later, rebuild_later
        )
        self._epochs = parts.epochs
        self._latest_epoch = parts.epochs.latest_epoch()
        self._state = parts.state
        self._state.ids_max = services.producer_ids_max
        self._snapshots = parts.snapshots
        self._randrange = services.randrange
        self._rolled = partial(services.rolled, self)
        self._has_remote_storage = services.remote_storage and topic_partition.topic not in NEVER_TIERED
        self.log_start_offset = parts.log_start_offset
        self.local_log_start_offset = max(parts.log_start_offset, parts.segments[0].base_offset)
        """The first offset in the local files. Of a log that is not tiered it is the log start."""
        self.highest_offset_in_remote_storage = -1
        """The last offset that was copied, as far as known. Local retention deletes up to it."""
        self.is_tiered = False
        """Whether closed segments are copied to the remote storage."""
        self.log_end_offset = parts.log_end_offset
        # A high watermark out of range belongs to another log, or to data that the disk has lost. One that is too low
        # does no harm.
        is_ours = self.local_log_start_offset <= high_watermark <= self.log_end_offset
        self.high_watermark = high_watermark if is_ours else self.local_log_start_offset
        self._state.on_high_watermark(self.high_watermark)
        self._take_config(config)
        self._forget_source()
        self.recovery_point = parts.recovery_point
        self._closed_synced_to = parts.segments[-1].base_offset
        """Base offset of the first segment that no flush has covered since it was closed. It may be below the recovery point: the
        close adds an entry to the time index of records that were synced before."""
        self._names = 0
        """Counts the names that files of the directory get: the file of epochs with each write without a sync, an index with its
        first entry, a segment with a roll. Without a durable name a file is lost, whatever was synced of its contents."""
        self._names_synced = 0 if parts.names_are_durable else -1
        """The count up to which a flush has synced them."""
        self._index_paths: list[str] = []
        """The index files of the active segment at the last flush."""
        self.syncs = Syncs(self._mark_unsynced, services.flush_times_ms)
        self.cleaned_to = -1
        """The offset where the cleaner continues; -1 if the log was never cleaned. `truncated` tells the cleaner that
        data it has read is gone."""
        self.truncated = False
        self._truncations = 0

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        is_known = config.mirror_leader_epoch == self._config.mirror_leader_epoch
        self._take_config(config)
        if not is_known:
            self._forget_source()
        if not config.remote_storage_enable or self.topic_partition.topic in NEVER_TIERED:
            # The topic is not tiered any more, or is found not to be tiered: a log is opened before its settings are known.
            # What the node has counts for nothing: without a remote storage it cannot know what is there.
            self.log_start_offset = max(self.log_start_offset, self.local_log_start_offset)
            self.highest_offset_in_remote_storage = -1

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._bounded: LogSegment | None = None
        """The segment that takes a batch without a closer look (`_segment_for`) if it has `_room` for it, and the batch is neither
        later than `_latest_ms` nor beyond `_last_offset`. None: no segment does."""
        self._room = self._last_offset = self._latest_ms = 0
        self._segment_bytes = config.internal_segment_bytes or config.segment_bytes
        self._draw_roll_time()
        self.is_tiered = self._has_remote_storage and config.remote_storage_enable

    @property
    def last_stable_offset(self) -> int:
        unstable = self._state.first_unstable_offset
        if not 0 <= unstable < self.high_watermark:
            return self.high_watermark
        # Retention or DeleteRecords may move the start above the first record of an open transaction.
        return max(unstable, self.log_start_offset)

    @property
    def segments(self) -> Sequence[LogSegment]:
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

    # Reading.

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            if self.log_start_offset <= offset < self.local_log_start_offset:
                raise LogRefused(
                    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                    f"offset {offset} is below the local log start {self.local_log_start_offset}",
                )
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
        if not self.local_log_start_offset <= offset < upper_bound_offset:
            return 0
        return self._segments.readable_bytes(offset, upper_bound_offset, self.log_end_offset)

    def aborted_transactions(
        self, fetch_offset: int, upper_bound_offset: int, most: int = MAX_OFFSET
    ) -> tuple[list[AbortedTransaction], int]:
        return aborted_transactions(self._segments, fetch_offset, upper_bound_offset, most)

    def with_aborted(
        self, offset: int, read: LogRead, max_bytes: int, minimum_one_batch: bool, most: int
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        aborted, end = self.aborted_transactions(offset, read.end_offset, most)
        while end < read.end_offset:
            fewer = self.read(offset, max_bytes, end, minimum_one_batch)
            if fewer.records:
                return fewer, aborted
            # Compaction has left nothing below the bound. The first batch is behind it.
            aborted, end = self.aborted_transactions(end, read.end_offset, most)
        return read, aborted

    def begin_lookup(self, timestamp_ms: int | None) -> TimestampLookup:
        """A search for the first record at or after a timestamp, to run in a worker thread. None searches for the
        largest timestamp."""
        return TimestampLookup(self._disk, self._segments, timestamp_ms, self.local_log_start_offset)

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
        return lookup.found is None or lookup.found.offset >= self.local_log_start_offset

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

    # Appending.

    def append_as_leader(
        self, batch: ValidatedBatch, leader_epoch: int, now_ms: int, terms: TransactionTerms | None = None
    ) -> AppendInfo:
        size, producer_id, state = batch.size, batch.producer_id, self._state
        if size > self._segment_bytes:
            raise self._too_large(batch)
        marker = marker_of(batch.buffer) if batch.is_control and producer_id >= 0 else None
        if producer_id >= 0 and not (
            # The next batch of a producer that is known needs no closer look.
            terms is None
            and not batch.is_control
            and state.follows(producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional)
        ):
            original = self._check_producer(batch, marker, terms)
            if original is not None:
                return _appended_before(original, batch)
        first_offset = self.log_end_offset
        last_offset = first_offset + batch.last_offset_delta
        STAMP.pack_into(batch.buffer, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        if leader_epoch != self._latest_epoch or self._epochs.changed:
            self._begin_epoch(leader_epoch, first_offset)
        timestamp_ms = batch.max_timestamp_ms
        segment = self._segments.items[-1]
        if (
            segment is not self._bounded
            or not 0 < segment.size <= self._room - size
            or timestamp_ms > self._latest_ms
            or last_offset > self._last_offset
        ):
            segment = self._segment_for(size, timestamp_ms, first_offset, last_offset, now_ms)
        if marker is not None:
            segment.make_ready_for_markers()
        segment.append(batch.buffer, size, first_offset, last_offset, timestamp_ms)
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            if batch.is_control:
                self._update_producer(batch, marker, first_offset, segment)
            else:
                state.apply_data(
                    producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    first_offset,
                    last_offset,
                    timestamp_ms,
                    batch.is_transactional,
                )
        state.end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, timestamp_ms if batch.log_append_time else -1)

    def append_next(
        self,
        batch: Buffer,
        size: int,
        record_count: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        leader_epoch: int,
    ) -> int:
        first_offset = self.log_end_offset
        end = first_offset + record_count
        segment = self._segments.items[-1]
        if (
            segment is not self._bounded
            or not 0 < segment.size <= self._room - size
            or max_timestamp_ms > self._latest_ms
            or end > self._last_offset
            or leader_epoch != self._latest_epoch
            or self._epochs.changed
        ):
            return -1
        state = self._state
        if producer_id < 0:
            STAMP.pack_into(batch, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
            segment.append(batch, size, first_offset, end - 1, max_timestamp_ms)
        else:
            producer = state.continued(producer_id, producer_epoch, base_sequence)
            if producer is None:
                return -1
            STAMP.pack_into(batch, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
            segment.append(batch, size, first_offset, end - 1, max_timestamp_ms)
            state.go_on(producer, base_sequence, end - 1, record_count - 1, max_timestamp_ms)
        self.log_end_offset = state.end_offset = end
        return first_offset

    def _too_large(self, batch: ValidatedBatch) -> LogRefused:
        text = f"a batch of {batch.size} bytes does not fit a segment of {self._segment_bytes}"
        return LogRefused(ErrorCode.RECORD_LIST_TOO_LARGE, text)

    def _check_producer(
        self, batch: ValidatedBatch, marker: EndTransactionMarker | None, terms: TransactionTerms | None
    ) -> BatchMetadata | None:
        """Return the earlier append if the batch is a duplicate. Raises LogRefused if the sequence does not follow."""
        return self._state.check(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_offset_delta,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            coordinator_epoch=marker.coordinator_epoch if marker is not None else -1,
            transaction_version=0 if terms is None else terms.transaction_version,
            from_client=batch.base_sequence >= 0 and (terms is None or terms.from_client),
            verifies=terms is not None,
            verification_guard=None if terms is None else terms.verification_guard,
        )

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
        segment: LogSegment,
    ) -> None:
        """Update producer and transaction state from a control batch that is already written."""
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

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append batches unchanged. Batches of an epoch later than `leader_epoch` and an incomplete last batch are
        skipped.

        Raises LogRefused: CORRUPT_MESSAGE if the bytes must be fetched again, OFFSET_OUT_OF_RANGE if the offsets do
        not follow.
        """
        view = memoryview(records)
        first_offset = self.log_end_offset
        if self._append_next_of_leader(view, leader_epoch):
            return AppendInfo(first_offset, self.log_end_offset - 1, -1)
        run = list(follower_batches(view, leader_epoch, self.log_end_offset))
        first_offset = run[0].base_offset if run else self.log_end_offset
        while run:
            count = self._append_run(view, run)
            del run[:count]
        return AppendInfo(first_offset, self.log_end_offset - 1, -1)

    def _append_next_of_leader(self, view: memoryview, leader_epoch: int) -> bool:
        """Append one batch that its leader has appended by `append_next`, by the same. A follower that keeps up gets hardly any
        other answer. Returns False, before any effect, for all other records."""
        if len(view) < HEADER_SIZE or view.readonly:
            return False
        header = HEADER.unpack_from(view)
        offset, length, epoch, magic, crc, attributes, delta, _, timestamp_ms = header[:9]
        producer_id, producer_epoch, sequence, count = header[9:]
        size = len(view)
        return (
            magic == 2
            and length + LOG_OVERHEAD == size
            and offset == self.log_end_offset
            and epoch == self._latest_epoch
            and epoch <= leader_epoch
            and not attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT)
            and count == delta + 1
            and crc_of(view) == crc
            and self.append_next(
                view, size, count, timestamp_ms, producer_id, producer_epoch, sequence, epoch
            )
            >= 0
        )

    def end_mirror(self, first_epoch: int, leader_epoch: int) -> bool:
        """Begin to take records as a leader, after what a mirror has brought from another cluster, in leader epochs below
        `first_epoch`. The present leader epoch is in the epoch cache.

        Open transactions of the other cluster are aborted here, by markers in one write: nobody else will end them. Its producers
        are forgotten, because this cluster gives out the same producer ids, and a batch must not be taken for a duplicate of
        theirs. A replica that takes over later calls this again: it may have read their batches anew from the log.

        The markers come from no coordinator (-1), so they refuse none of this cluster. Returns whether that was all: many
        transactions need several calls, and no record may be appended before the last one."""
        began = self._end_of_mirror(first_epoch)
        if began is None:
            began = self.log_end_offset
        # With all records of the other cluster, the beginnings of transactions of this one may be deleted. These go on.
        has_theirs = self.log_start_offset < began or began == self.log_end_offset
        markers = bytearray()
        theirs = self._state.begun_before(began) if has_theirs else ()
        for count, producer in enumerate(islice(theirs, MARKERS_AT_ONCE)):
            markers += build_end_transaction_marker(
                committed=False,
                coordinator_epoch=-1,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                timestamp_ms=producer.last_timestamp_ms,
                base_offset=self.log_end_offset + count,
                leader_epoch=leader_epoch,
            )
        if markers:
            self.append_as_follower(markers, leader_epoch)
            if has_theirs and next(self._state.begun_before(began), None) is not None:
                return False
        self._state.forget_before(began)
        return True

    def _end_of_mirror(self, first_epoch: int) -> int | None:
        """Where the records of this cluster begin. None: there are none."""
        return next((start for epoch, start in self._epochs.entries if epoch >= first_epoch), None)

    def _forget_source(self) -> None:
        """As `end_mirror`, after producers were read from the log. A snapshot that is written from now on does not tell
        which offset a coordinator's epoch is from."""
        first_epoch = self._config.mirror_leader_epoch
        began = self._end_of_mirror(first_epoch) if first_epoch else None
        if began is not None:
            self._state.forget_before(began)

    def _append_run(self, view: memoryview, run: list[BatchHeader]) -> int:
        """Append the batches that fit into the segment of the first one. Returns their number."""
        first, config = run[0], self._config
        segment = self._segment_for(
            first.size, first.max_timestamp_ms, first.base_offset, first.last_offset, first.max_timestamp_ms
        )
        room, last_offset = self._room - segment.size, self._last_offset
        count, size = 0, 0
        for header in run:
            if count and (size + header.size > room or header.last_offset > last_offset):
                break
            count += 1
            size += header.size
        taken = run[:count]
        if any(header.is_control for header in taken):
            segment.make_ready_for_markers()
        segment.append_many(view[first.position : first.position + size], taken)
        for header in taken:
            if header.magic == 2 and header.leader_epoch >= 0 and header.leader_epoch != self._latest_epoch:
                if self._latest_epoch < config.mirror_leader_epoch <= header.leader_epoch:
                    # As `end_mirror` of the leader, so that snapshots from here on have nothing of the other cluster.
                    self._state.forget_before(header.base_offset)
                self.assign_epoch_start(header.leader_epoch, header.base_offset)
            batch = view[header.position : header.position + header.size] if header.is_control else None
            apply_batch(self._state, header, batch, segment)
        self.log_end_offset = taken[-1].last_offset + 1
        if self._epochs.changed:
            self._write_epochs()
        return count

    def _segment_for(
        self, size: int, timestamp_ms: int, first_offset: int, last_offset: int, now_ms: int
    ) -> LogSegment:
        """The active segment, or a new one if Kafka would roll here. Only this decides it: appends do not ask
        while their batches are within the bounds that are set here."""
        segment = self._segments.items[-1]
        began: int | None = timestamp_ms
        index_bytes = self._config.segment_index_bytes
        if segment.size:
            began = segment.rolling_timestamp_ms
            if began is None:
                began = self._began(segment)
            waited = now_ms - segment.created_ms if began is None or began < 0 else timestamp_ms - began
            must_roll = (
                segment.size > self._segment_bytes - size
                or waited > self._roll_after_ms
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or segment.are_indexes_full(index_bytes)
            )
        else:
            must_roll = last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        if must_roll:
            segment, began = self.roll(first_offset, now_ms), timestamp_ms
        # Each condition above has a bound here.
        self._room = min(self._segment_bytes, segment.indexes_full_from(index_bytes))
        self._last_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        self._bounded = None
        if began is not None and began >= 0:
            self._latest_ms = min(began + self._roll_after_ms, MAX_OFFSET)
            self._bounded = segment
        return segment

    def _began(self, segment: LogSegment) -> int | None:
        try:
            return segment.first_batch_timestamp()
        except BatchCorrupt:
            # An unchecked segment is damaged: its age counts from this start.
            segment.rolling_timestamp_ms = -1
            return None

    def roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Begin a new active segment at `base_offset`. A snapshot of the producers' state at that offset is written
        beside it, later if there are many (`go_on_with_snapshot`)."""
        old = self._segments.active
        segment = self._segments.roll(base_offset, self._config.index_interval_bytes, now_ms)
        if segment is not old:
            self._names += 1
            self._state.end_offset = base_offset
            try:
                self._snapshots.begin(self._state)
            finally:
                # What is closed stays closed, even if the disk has no room for the snapshot.
                self._draw_roll_time()
                self._rolled()
        return segment

    def snapshot_path(self, offset: int) -> str | None:
        """The file with the producers' state at the base offset of a segment. None if it is not written."""
        return self._snapshots.path(offset) if offset in self._snapshots.offsets else None

    def snapshot_maker(self, offset: int) -> Callable[[], bytes]:
        """A job for a worker thread: the snapshot at the base offset of a segment, from an earlier one and the records since
        then. A snapshot may be missing because the disk was full, so it is not written. Without producers no records are read."""
        if not self._state.producers:
            return partial(encode_snapshot, ())
        start = min(self.log_start_offset, offset)
        segments = [
            (segment.base_offset, segment.stem + LOG_SUFFIX, segment.size)
            for segment in self._segments.from_offset(max(start, self._segments.items[0].base_offset))
            if segment.base_offset < offset
        ]
        snapshots = [(each, self._snapshots.path(each)) for each in self._snapshots.within(start, offset)]
        return partial(made_snapshot, self._disk, start, snapshots, segments, offset)

    # The remote storage

    def take_remote_part_of(self, log: Log) -> None:
        """This log takes the place of another, which begins in the remote storage."""
        if not self.is_tiered:
            return
        self.log_start_offset = min(log.log_start_offset, self.local_log_start_offset)
        self.highest_offset_in_remote_storage = min(
            log.highest_offset_in_remote_storage, self.log_end_offset - 1
        )
        earlier = LeaderEpochFileCache(log.epoch_entries)
        earlier.truncate_from_end(self.local_log_start_offset)
        if earlier.entries:
            self._epochs.put_before(earlier)
            self._write_epochs()

    def segments_from(self, offset: int, most: int = MAX_OFFSET) -> list[LogSegment]:
        """Up to so many segments, from the one that contains the offset on."""
        return list(islice(self._segments.from_offset(offset), most))

    def has_closed_segment(self, segment: LogSegment) -> bool:
        """Whether the segment is still a part of the log, and takes no appends."""
        at = self._segments.index_of(segment.base_offset)
        return self._segments.items[at] is segment and segment is not self._segments.active

    def ages_of(self, segments: Sequence[LogSegment]) -> SegmentAges | None:
        """A task that reads the ages of closed segments in a worker thread. None if they are known."""
        if all(segment.knows_its_age() for segment in segments):
            return None
        return SegmentAges(self._disk, segments)

    def aborted_entries(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], int]:
        """Aborted transactions that ended in the local files, and overlap a range that may lie below them."""
        return self._segments.aborted(fetch_offset, upper_bound_offset, MAX_OFFSET)

    @property
    def has_unfinished_snapshot(self) -> bool:
        return self._snapshots.is_unfinished(self._state)

    def go_on_with_snapshot(self) -> bool:
        """Do a step of the last roll's snapshot. Returns whether nothing of it is left. Raises OSError."""
        return self._snapshots.go_on(self._state)

    def _draw_roll_time(self) -> None:
        self._roll_after_ms = roll_after_ms(self._config, self._randrange)
        self._bounded = None

    def set_high_watermark(self, offset: int) -> None:
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        # The high watermark is never below the log start. It stays put until the log is durable, because a power loss
        # could still separate the log from its topic.
        if offset > self.high_watermark and self.is_durable:
            self.high_watermark = offset
            if self._state.first_unstable_offset >= 0:
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
        if offset > self.local_log_start_offset:
            self.local_log_start_offset = offset
        return True

    def note_copied_to(self, offset: int) -> None:
        """The remote storage has everything up to an offset, inclusive. Later calls with lower offsets do nothing."""
        if self.is_tiered and offset > self.highest_offset_in_remote_storage:
            self.highest_offset_in_remote_storage = offset

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
        themselves, and a flush syncs the file. No local batch has the epochs of what is in the remote storage only, and a
        power loss may leave the file empty that was not synced."""
        self._latest_epoch = self._epochs.latest_epoch()
        if self._epochs.changed:
            if self.is_tiered and self.log_start_offset < self.local_log_start_offset:
                sync = True
            self._disk.write_atomic(
                f"{self.directory}/{LEADER_EPOCH_FILE}", format_epochs(self._epochs.entries), sync=sync
            )
            self._names += not sync
            self._epochs.changed = False

    def _sync_epochs(self) -> None:
        """Make the epoch file durable. A file that has all epochs is not written anew: a full disk has no room for that, and
        what follows may make room."""
        path = f"{self.directory}/{LEADER_EPOCH_FILE}"
        if self._epochs.changed or not self._disk.exists(path):
            self._epochs.changed = True
            self._write_epochs(sync=True)
            return
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self.directory)

    # Truncation, syncs, retention, the end.

    def producers_as_of(self, offset: int) -> Work[ProducersAsOf | None]:
        """Read what a truncation at an offset has to know of producers: what they have written since the last snapshot, which may
        be a whole segment. Appends may go on. None if the truncation reads nothing, or meets an error that this has met."""
        while self._segments.items[0].base_offset <= offset < self.log_end_offset:
            basis = self._basis()
            try:
                at = self._segments.look_at(offset)
                state = ProducerStateManager()
                for cost in self._read_state(state, at):
                    yield cost
                    if self._basis() != basis:
                        break
                else:
                    return ProducersAsOf(basis, at, state)
            except Exception:  # the truncation meets it too, and its caller knows what follows from it
                break
        return None

    def _basis(self) -> tuple[object, ...]:
        """What producers are read from, as far as it changes below the end of a truncation."""
        return self._segments, self._segments.changes, self._segments.items[0], self.log_start_offset

    def truncate_to(self, offset: int, now_ms: int = 0, producers: ProducersAsOf | None = None) -> None:
        """Drop everything from an offset on. An offset below the log's start leaves an empty log that starts there.

        At or above the log's end, only epochs without records are dropped. A batch that spans the offset is dropped
        whole and the log ends before it; Kafka would still claim to have the cut records. In a log with very many
        segments, one call drops only some of them, so that it does not block the loop. The log then ends above the
        offset, as if truncated there, and a follower asks its leader for the diverging epoch again.

        `producers`: what `producers_as_of` this offset has just returned. Without it they are read here, in one step.
        """
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            self._write_epochs()
            return
        if offset < self._segments.items[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        at = self._segments.look_at(offset)
        if producers is not None and producers[:2] == (self._basis(), at):
            state = producers.state
        else:
            state = ProducerStateManager()
            at_once(self._read_state(state, at))
        with change_of_many(f"the truncation of {self.topic_partition}"):
            offset = self._segments.truncate_to(offset, now_ms)
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.local_log_start_offset = min(self.local_log_start_offset, offset)
            self._after_truncation()
            self._state.take_over(state, offset)
            self._snapshots.drop_outside(self.log_start_offset, offset)
        self._forget_source()
        self._state.on_high_watermark(self.high_watermark)
        # Written last, because the log is complete without this file. A start drops epochs that begin at the log's
        # end, and finds later epochs in the batches.
        self._write_epochs()

    def _read_state(self, state: ProducerStateManager, offset: int) -> Work[None]:
        """Read the producers' state at an offset. If no producer is known, older ones are not searched for, because that
        would read a segment."""
        if self._state.producers:
            self._snapshots.read_latest(state, min(self.log_start_offset, offset), offset)
            yield from replay_in_pieces(state, self._segments.from_offset(state.end_offset), offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0, *, anew: bool = False) -> None:
        """Drop everything, like `truncate_to`. If that needs several calls, the log ends where this call has stopped.

        A tiered log keeps its start and the epochs below the offset: that part is in the remote storage. With `anew` it
        keeps nothing: the log begins at the offset."""
        if not self._segments.goes_in_one_step():
            self.truncate_to(self._segments.items[0].base_offset, now_ms)
            return
        self._segments.try_descriptor()
        with change_of_many(f"the truncation of {self.topic_partition}"):
            self._segments.start_anew(offset, self._config.index_interval_bytes, now_ms)
            self.local_log_start_offset = self.log_end_offset = offset
            if self.is_tiered and not anew:
                self.log_start_offset = min(self.log_start_offset, offset)
            else:
                self.log_start_offset = offset
                self._epochs.clear()
            self._after_truncation()
            self._snapshots.remove_all()
        self._state.clear(offset)
        self.high_watermark = offset
        self._write_epochs()

    def start_after_remote_segment(
        self,
        offset: int,
        log_start_offset: int,
        epochs: Iterable[tuple[int, int]],
        producer_snapshot: bytes,
        now_ms: int = 0,
    ) -> bool:
        """Drop everything, and begin at the end of a segment in the remote storage, with the epochs and the producers up to
        there. Returns False if the log is so long that only a part of it is dropped: call again. Raises SnapshotCorrupt, and
        nothing has changed then.

        A replica that begins with the leader's local part is as complete as the leader by that (KIP-405)."""
        producers = decode_snapshot(producer_snapshot)
        log_start_offset = min(log_start_offset, offset)
        # An empty log at the log start, to which a start comes back from all that follows.
        self.truncate_fully_and_start_at(log_start_offset, now_ms, anew=True)
        if self.log_end_offset != self._segments.items[0].base_offset:
            return False
        remote = LeaderEpochFileCache()
        for epoch, start_offset in epochs:
            if start_offset < offset:
                remote.assign(epoch, start_offset)
        remote.truncate_from_start(log_start_offset)
        # No local batch has what is in these files, so they are durable before the segment that relies on them.
        self._epochs.changed = True
        self._disk.write_atomic(f"{self.directory}/{LEADER_EPOCH_FILE}", format_epochs(remote.entries))
        self._snapshots.put(offset, producer_snapshot, sync=True)
        with change_of_many(f"the beginning of {self.topic_partition} after a remote segment"):
            self._segments.start_anew(offset, self._config.index_interval_bytes, now_ms)
        self.local_log_start_offset = self.log_end_offset = self.high_watermark = offset
        self._epochs = remote
        self._epochs.changed = False
        self._after_truncation()
        self._state.load(producers, offset)
        self._state.on_high_watermark(offset)
        return True

    def _after_truncation(self) -> None:
        self.truncated = True
        self._truncations += 1
        self._bounded = None  # the segment may be gone, and its file must not stay open
        self.cleaned_to = min(self.cleaned_to, self.log_end_offset)
        self._epochs.truncate_from_end(self.log_end_offset)
        self._latest_epoch = self._epochs.latest_epoch()
        self.high_watermark = max(min(self.high_watermark, self.log_end_offset), self.local_log_start_offset)
        self.highest_offset_in_remote_storage = min(
            self.highest_offset_in_remote_storage, self.log_end_offset - 1
        )
        # The next sync must include the segment that was cut, also if another one begins at its end. A power loss would bring
        # back what was cut off, in the place of records that were synced since.
        self.recovery_point = min(self.recovery_point, self._segments.active.base_offset)
        self._closed_synced_to = min(self._closed_synced_to, self._segments.active.base_offset)

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
        closed_to = active.base_offset
        start = min(recovery_point, self._closed_synced_to)
        for at, segment in enumerate(self._segments.from_offset(start)):
            if closed_only and (segment is active or at == SYNCED_AT_ONCE):
                end_offset = closed_to = segment.base_offset
                break
            newest = segment.base_offset
            if newest >= recovery_point and not directories:
                directories = new_names(self.directory, is_first=segment is self._segments.items[0])
            if segment is not active:
                # The bytes of a closed segment were already handed to the kernel. There may be thousands of closed
                # segments, so the worker opens them.
                paths += segment.names()
            elif segment.size or segment.truncations:
                files.append(segment.file)
                index_paths = segment.write_indexes(create=False)
                if index_paths != self._index_paths:
                    self._index_paths = index_paths
                    self._names += 1
                paths += index_paths
        paths += self._snapshots.paths_within(recovery_point, end_offset) + self._snapshots.take_late(
            recovery_point
        )
        if not self.is_durable:
            paths.append(f"{self.directory}/{PARTITION_METADATA_FILE}")
            directories = new_names(self.directory, is_first=True)
        if not directories and self._names > self._names_synced:
            directories = [self.directory]
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
            closed_to,
            self._names,
        )

    def begin_making_durable(self) -> LogFlush:
        """What a worker thread must sync before anything in the log is committed. flush.make_durable syncs the log directory
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
            self.is_durable = True
        self._names_synced = max(self._names_synced, flush.names)
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            self._closed_synced_to = max(self._closed_synced_to, flush.closed_to)

    def unknown_ages(self, now_ms: int) -> SegmentAges | None:
        """A task that reads the age of the oldest segments in a worker thread. None if their ages are already known."""
        if not self._retains_by_time():
            return None
        retention_ms = self._local_retention_ms
        oldest = self._segments.items[: min(DROPPED_AT_ONCE, len(self._segments.items) - 1)]
        for segment in oldest:
            if not segment.knows_its_age():
                return SegmentAges(self._disk, oldest, lambda age_ms: now_ms - age_ms <= retention_ms)
            if now_ms - segment.retention_timestamp_ms() <= retention_ms:
                break
        return None

    @property
    def _has_local_retention(self) -> bool:
        return self.is_tiered and not self._config.remote_log_copy_disable

    @property
    def _local_retention_ms(self) -> int:
        config = self._config
        follows = not self._has_local_retention or config.local_retention_ms == FOLLOWS_RETENTION
        return config.retention_ms if follows else config.local_retention_ms

    @property
    def _local_retention_bytes(self) -> int:
        config = self._config
        follows = not self._has_local_retention or config.local_retention_bytes == FOLLOWS_RETENTION
        return config.retention_bytes if follows else config.local_retention_bytes

    @property
    def _deletes(self) -> bool:
        """Whether age and size delete local segments. Those of a tiered topic go whatever the cleanup policy is."""
        return self._config.delete or self._has_local_retention

    def _retains_by_time(self) -> bool:
        return self._deletes and self._local_retention_ms >= 0

    def _mark_unsynced(self) -> None:
        """The page cache may contain data that is not on the disk. The mark is not synced either, and lasts as long as
        the page cache."""
        with suppress(OSError):  # if this fails too, nothing more can be recorded
            self._disk.open(f"{self.directory}/{SYNC_FAILED_FILE}", create=True).close()

    def enforce_retention(self, now_ms: int) -> int:
        """Delete segments that retention by time, size or log start allows, as far as their age is known. Returns
        their number, at most DROPPED_AT_ONCE.

        Of a tiered log these are local copies: a segment that is not in the remote storage stays, unless it lies below
        the log start."""
        config = self._config
        count = count_deletable(
            self._segments.facts(self.log_end_offset, by_time=self._retains_by_time()),
            total_bytes=self._segments.size(),
            high_watermark=self.high_watermark,
            log_start_offset=self.local_log_start_offset,
            delete_policy=self._deletes,
            retention_ms=self._local_retention_ms,
            retention_bytes=self._local_retention_bytes,
            now_ms=now_ms,
        )
        if not count:
            return 0
        if count == len(self._segments.items):
            # Rolled even if it may not be deleted yet: only a closed segment is copied to the remote storage.
            try:
                self.roll(self.log_end_offset, now_ms)
            except OSError as error:
                # A full disk has no room for the indexes of the active segment. The other segments make it.
                count -= 1
                if not count or not is_full(error):
                    raise
        if self._has_local_retention:
            facts = self._segments.facts(self.log_end_offset, by_time=False)
            tiered = count_tiered(facts, self.highest_offset_in_remote_storage, self.log_start_offset)
            count = min(count, tiered)
            if not count:
                return 0
        if self.has_unfinished_snapshot:
            # After a crash, the producers would be looked for in the segments from an older snapshot on.
            self._rolled()
            return 0
        if self._has_local_retention and self.log_start_offset == self.local_log_start_offset:
            # From now on some epochs are nowhere else.
            self._sync_epochs()
        bases = [segment.base_offset for segment in self._segments.items[:count]]
        try:
            self._segments.drop_oldest(count, config.file_delete_delay_ms)
        finally:
            # After a disk error some segments are gone too.
            self._after_dropping(bases)
        return count

    def _after_dropping(self, bases: Sequence[int]) -> None:
        first_offset = self._segments.items[0].base_offset
        self.local_log_start_offset = max(self.local_log_start_offset, first_offset)
        if not self._has_local_retention:
            self.log_start_offset = self.local_log_start_offset
        # Records in the remote storage are found by their epochs.
        self._epochs.truncate_from_start(self.log_start_offset if self.is_tiered else first_offset)
        for base_offset in bases:
            if base_offset < self._segments.items[0].base_offset:
                self._snapshots.remove(base_offset)
        try:
            self._write_epochs()
        except OSError as error:
            # The next append writes the file. Until then it has the epochs of what is gone too, which a start drops.
            if not is_full(error):
                raise

    def replace_segments(self, replaced: Sequence[LogSegment], suffixes: Sequence[str], now_ms: int) -> None:
        """Replace neighbouring segments by a cleaned one, whose files exist. See SegmentList.replace."""
        self._segments.replace(replaced, suffixes, now_ms, self._config.file_delete_delay_ms)
        for segment in replaced[1:]:
            self._snapshots.remove(segment.base_offset)

    def close(self) -> None:
        """Write the last time index entry and the producers' state, make everything durable, and close the files.
        Blocks. The log cannot be used afterwards."""
        has_new_entries = self._segments.active.become_inactive()
        self._state.end_offset = self.log_end_offset
        if self.log_end_offset:
            self._snapshots.take(self._state)
        self._write_epochs(sync=True)
        is_synced = (
            self.recovery_point >= self.log_end_offset
            and self._names_synced >= self._names
            and self.is_durable
            and not self._truncations
        )
        if not is_synced or has_new_entries:
            self.flush()
        self.release()

    def relocate(self, directory: str) -> None:
        """Adopt the new path after the directory was renamed. No flush may be in progress, because it would not find
        its files."""
        self.directory = directory
        self.is_durable = False
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


def _appended_before(original: BatchMetadata, batch: ValidatedBatch) -> AppendInfo:
    """The answer to a duplicate batch: the same as for the first append."""
    stamped = original.timestamp_ms if batch.log_append_time else -1
    return AppendInfo(original.first_offset, original.last_offset, stamped, True)


def roll_after_ms(config: LogConfig, randrange: Callable[[int], int] | None) -> int:
    """The age in ms of a segment's records at which it is rolled. Without `randrange` there is no jitter."""
    wait_ms = config.segment_ms
    if config.compact:
        # The active segment is never cleaned, so it must be closed in time.
        wait_ms = min(wait_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, wait_ms)
    if jitter_ms > 0 and randrange is not None:
        wait_ms -= randrange(jitter_ms + 1)
    return wait_ms


append_next_in_python, set_high_watermark_in_python = UnifiedLog.append_next, UnifiedLog.set_high_watermark
append_next_compiled: Any = None
set_high_watermark_compiled: Any = None
"""The same methods of _append.c; None if it was not compiled, or from another source text. Tests hold the two equal."""
try:
    require_switched_on()
    from kafkacompat.log import _append

    append_next_compiled, set_high_watermark_compiled = _append.methods_of_log(
        (
            UnifiedLog,
            SegmentList,
            LeaderEpochFileCache,
            LogSegment,
            SegmentIndexes,
            Index,
            ProducerStateManager,
            Verifications,
            Producer,
            RealFile,
        ),
        BatchMetadata,
        TAIL_BATCHES,
        RETAINED_BATCHES,
        OffsetIndex.page_size,
        TimeIndex.page_size,
        set_high_watermark_in_python,
    )
    UnifiedLog.append_next = append_next_compiled  # type: ignore[method-assign]
    UnifiedLog.set_high_watermark = set_high_watermark_compiled  # type: ignore[method-assign]
except (ImportError, AttributeError, TypeError):  # it was not compiled, or from another source text
    pass
