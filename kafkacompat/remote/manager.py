"""The remote log manager of a broker: copies closed segments to the remote storage, deletes what retention lets go, and reads
what is there only (RemoteLogManager, KIP-405; KIP-950, KIP-956, KIP-1241).

manager_core.py decides; here are the loops of each partition, by role. A leader copies and deletes. A follower learns up to
where the leader has copied, so that its local retention may follow. Calls of the remote store block in threads of their own, as
many at a time as the settings of each duty allow, so a store that hangs holds up nobody else. Settings: remote.log.manager.*,
remote.log.reader.*, remote.log.metadata.custom.metadata.max.bytes.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import report
from kafkacompat.log.checkpoint import CheckpointCorrupt, format_epochs, parse_epochs
from kafkacompat.log.cleaner.cleaner import CleaningStopped
from kafkacompat.log.cleaner.filtering import last_records_of
from kafkacompat.log.cleaner.job import CleaningJob
from kafkacompat.log.index import MAX_RELATIVE_OFFSET
from kafkacompat.log.log_segment import LOG_SUFFIX
from kafkacompat.log.producer_snapshots import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkacompat.ports import AbortedTransaction, LogRefused, TimestampOffset, passes
from kafkacompat.records.batch import BatchCorrupt, assemble, parse_header
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import RecordMalformed
from kafkacompat.remote import cleaning
from kafkacompat.remote import manager_core as core_rules
from kafkacompat.remote.cleaning import Staging
from kafkacompat.remote.manager_core import Candidate, Epochs, LocalSegment, Retention, RLMQuotaManager
from kafkacompat.remote.metadata import (
    CompactedMark,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    leader_epochs,
    mark_bytes,
    mark_of,
)
from kafkacompat.remote.ports import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.remote_index_cache import RemoteIndexCache, fetch_whole
from kafkacompat.remote.remote_reads import RemoteRecords, RemoteSegmentReader, records_before
from kafkacompat.remote.traffic import RemoteState, RemoteTopicTraffic, RemoteTraffic
from kafkacompat.tasks import Cancelled, Limit, Overloaded, in_turns, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.log.index import AbortedTxn
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Clock, Disk, Workers
    from kafkacompat.remote.cleaning import CleaningWork, Plan, RemoteCleaner
    from kafkacompat.remote.metadata_cache import Piece
    from kafkacompat.remote.ports import RemoteLogMetadataManager, RemoteStorageManager
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

T = TypeVar("T")
LOOKED_AT_ONCE = 64
"""Closed segments that one pass of a partition looks at. More follow at once."""
TAKEN_OVER_AFTER_MS = 300_000
"""If the leader of a deleted topic deletes nothing for so long, another replica does. Both may: each step can be repeated."""
NO_RECORDS = memoryview(b"")
CLEANING_RESTS_MOST = 64
"""Passes between two cleanings of a remote part that fail. Each one fetches anew what it cleans."""
ABORTED_MAX = 1_000
"""Aborted transactions of one read, beyond which it gives fewer records, as a read of local files does. They are put in order and
told in the loop, and there may be one for each few hundred bytes."""
SEGMENTS_PASSED_MAX = 100
"""Copies that one read passes over, because their last records were compacted away."""


class Core(Protocol):
    """The parts of Partition that are used here."""

    topic_id: Uuid
    topic_partition: Any
    leader_epoch: int
    is_leader: bool
    log: Any


COPIERS = "remote.log.manager.copier.thread.pool.size"
DELETERS = "remote.log.manager.expiration.thread.pool.size"
READERS = "remote.log.reader.threads"
FOLLOWERS = "remote.log.manager.follower.thread.pool.size"


class Settings(Protocol):
    """The settings in force. Quotas and sizes of thread pools may change while the node runs, the other settings are those of
    its start."""

    def get_int(self, name: str) -> int: ...


class _Served(NamedTuple):
    metadata: RemoteLogSegmentMetadata
    next_offset: int


class RemoteRead(NamedTuple):
    records: memoryview
    aborted_transactions: list[AbortedTransaction]


class RemoteLogAuxState(NamedTuple):
    """With what a follower begins after a remote segment."""

    offset: int
    epochs: list[tuple[int, int]]
    producer_snapshot: bytes


class _Tiered:
    """A tiered partition of this node in one role."""

    __slots__ = (
        "being_copied",
        "cleaning_rest",
        "cleanings_failed",
        "core",
        "custom_metadata_is_too_large",
        "end_offset_at_first",
        "id",
        "is_leader",
        "leader_epoch",
        "loops",
        "start_is_known",
        "state",
    )

    def __init__(self, core: Core, partition_id: TopicIdPartition) -> None:
        self.core = core
        self.id = partition_id
        self.is_leader = core.is_leader
        self.leader_epoch = core.leader_epoch
        self.end_offset_at_first = self.log.log_end_offset
        """The log's end when it took this role, or was tiered in it."""
        self.loops: dict[str, Started] = {}
        self.being_copied: set[RemoteLogSegmentId] = set()
        self.start_is_known = False
        self.state = RemoteState()
        self.custom_metadata_is_too_large = False
        self.cleanings_failed = 0
        """In turn."""
        self.cleaning_rest = 0
        """Passes until the next cleaning."""

    @property
    def log(self) -> UnifiedLog:
        log: UnifiedLog = self.core.log
        return log

    def stop(self, *names: str) -> None:
        for name in names or tuple(self.loops):
            loop = self.loops.pop(name, None)
            if loop is not None:
                loop.cancel()


class RemoteLogManager:
    """Used in the loop's thread. HostedPartitions tells it of roles (`Tiering` of partition/hosted_partitions.py)."""

    def __init__(
        self,
        node_id: int,
        settings: Settings,
        tasks: Tasks,
        clock: Clock,
        workers: Workers,
        disk: Disk,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        uuid: Callable[[], Uuid],
        log_start_moved: Callable[[Any], None] = lambda core: None,
        cleaner: Callable[[], RemoteCleaner | None] = lambda: None,
    ) -> None:
        """`log_start_moved` is called with a partition whose log start was moved by retention. `cleaner` gives what cleans
        the remote part of compacted topics."""
        self._cleaner = cleaner
        self._cleanings = Limit(1)
        self._clearing: set[TopicIdPartition] = set()
        """Partitions with files of a cleaning, which may still be written."""
        self._node_id = node_id
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._workers = workers
        self._disk = disk
        self._storage = storage
        self._metadata = metadata
        self._uuid = uuid
        self._log_start_moved = log_start_moved
        self._interval_ms = settings.get_int("remote.log.manager.task.interval.ms")
        self._backoff_ms = settings.get_int("remote.log.manager.task.retry.backoff.ms")
        self._custom_metadata_max_bytes = settings.get_int("remote.log.metadata.custom.metadata.max.bytes")
        self._copies = Limit(settings.get_int(COPIERS))
        self._deletions = Limit(settings.get_int(DELETERS))
        self._reads = Limit(
            settings.get_int(READERS), settings.get_int("remote.log.reader.max.pending.tasks")
        )
        self._follower_states = Limit(settings.get_int(FOLLOWERS))
        """Consumers that read much must not keep a follower out of the in-sync replicas."""
        self._copy_quota = RLMQuotaManager(
            settings.get_int("remote.log.manager.copy.max.bytes.per.second"),
            settings.get_int("remote.log.manager.copy.quota.window.num"),
            settings.get_int("remote.log.manager.copy.quota.window.size.seconds"),
        )
        self._fetch_quota = RLMQuotaManager(
            settings.get_int("remote.log.manager.fetch.max.bytes.per.second"),
            settings.get_int("remote.log.manager.fetch.quota.window.num"),
            settings.get_int("remote.log.manager.fetch.quota.window.size.seconds"),
        )
        self.indexes = RemoteIndexCache(
            storage, lambda: settings.get_int("remote.log.index.file.cache.total.size.bytes")
        )
        self._reader = RemoteSegmentReader(storage, self.indexes)
        self._uploads: dict[RemoteLogSegmentId, Deferred[bytes | None]] = {}
        """In progress in threads, also those for which no task waits any more."""
        self.traffic = RemoteTraffic()
        self._deleting: set[TopicIdPartition] = set()
        """Partitions of deleted topics, of which this node deletes what is in the remote storage, or sees to it."""
        self._emptied: dict[TopicIdPartition, Started] = {}
        """Partitions that are not tiered any more, and of which this node deletes or has deleted what is in the remote storage."""
        self._tiered: dict[tuple[Uuid, int], _Tiered] = {}
        self._is_closed = False

    # Roles

    def role_taken(self, core: Core) -> None:
        """The partition leads or follows in some epoch, or has other settings."""
        key = core.topic_id, core.topic_partition.partition
        known = self._tiered.get(key)
        if not core.log.is_tiered:
            if known is not None:
                self._forget(known)
                if not (core.log.config.remote_log_delete_on_disable and core.is_leader):
                    self._metadata.on_stop_partitions([known.id])
            if core.log.config.remote_log_delete_on_disable and core.is_leader:
                # A leader that has ended may have left something, also of what it was about to delete.
                self._empty(core)
            return
        if known is not None and (known.core, known.leader_epoch, known.is_leader) == (
            core,
            core.leader_epoch,
            core.is_leader,
        ):
            self._start_loops(known)
            return
        if known is None:
            self.traffic.begin(core.topic_partition.topic)
        else:
            known.stop()
        tiered = self._tiered[key] = _Tiered(core, self._id_of(core))
        ids = [tiered.id]
        self._emptied.pop(tiered.id, None)
        self._metadata.on_partition_leadership_changes(*((ids, []) if core.is_leader else ([], ids)))
        self._start_loops(tiered)

    def gone(self, core: Core, *, is_deleted: bool, was_leader: bool) -> None:
        """The partition is not on this node any more. Of a deleted topic its leader deletes what is in the remote storage, as
        in Kafka, and another replica what the leader leaves when it ends."""
        self._leave_emptying(self._id_of(core), is_deleted=is_deleted)
        known = self._tiered.get((core.topic_id, core.topic_partition.partition))
        if known is None or known.core is not core:
            return
        self._forget(known)
        if not is_deleted:
            self._metadata.on_stop_partitions([known.id])
        elif was_leader:
            self._delete_topic(known.id, self._mark_and_delete(known.id))
        else:
            self._delete_topic(known.id, self._take_over(known.id, is_marked=False))

    def _forget(self, tiered: _Tiered) -> None:
        tiered.stop()
        del self._tiered[tiered.id.topic_id, tiered.id.partition]
        self.traffic.end(tiered.id.topic)

    def states(self) -> dict[str, list[RemoteState]]:
        """Of the partitions that this node leads, by topic."""
        found: dict[str, list[RemoteState]] = {}
        for each in self._tiered.values():
            if each.is_leader:
                found.setdefault(each.id.topic, []).append(each.state)
        return found

    def deletion_is_begun(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """The metadata, of which this node leads this part, say that the deletion of a partition was begun and is not
        finished. Its topic is deleted."""
        partition = metadata.topic_id_partition
        key = partition.topic_id, partition.partition
        if partition in self._deleting or key in self._tiered or self._is_closed:
            return
        if metadata.broker_id == self._node_id:
            self._metadata.on_partition_leadership_changes([partition], [])
            self._delete_topic(partition, self._delete_partition(partition, is_marked=True))
        else:
            self._delete_topic(partition, self._see_to(partition))

    def _delete_topic(self, partition: TopicIdPartition, deletion: Coroutine[Any, None, None]) -> None:
        self._deleting.add(partition)
        done = self._tasks.start(f"deleting the remote log of {partition}", deletion)
        done.on_done(lambda _: self._deleting.discard(partition))

    def _empty(self, core: Core) -> None:
        """Delete what the remote storage has of a partition that is not tiered any more."""
        partition = self._id_of(core)
        if partition not in self._emptied:
            self._metadata.on_partition_leadership_changes([partition], [])
            self._emptied[partition] = self._tasks.start(
                f"deleting the remote log of {partition}", self._delete_partition(partition, is_marked=False)
            )

    def _leave_emptying(self, partition: TopicIdPartition, *, is_deleted: bool) -> None:
        """The next leader goes on. What it copies when the partition is tiered again must not be deleted here, where nobody would
        learn of that. Of a deleted topic there is no next leader."""
        emptying = self._emptied.pop(partition, None)
        if emptying is not None and not emptying.done and not is_deleted:
            emptying.cancel()
            self._metadata.on_stop_partitions([partition])

    def _start_loops(self, tiered: _Tiered) -> None:
        if not tiered.is_leader:
            self._start_loop(tiered, "follow", self._follow_once)
            return
        config = tiered.log.config
        if config.remote_log_copy_disable:
            tiered.stop("copy")
            tiered.state.copy_lag_bytes = tiered.state.copy_lag_segments = 0  # nothing is to be copied
        else:
            self._start_loop(tiered, "copy", self._copy_once)
        if config.remote_log_copy_disable or not config.compact:
            tiered.stop("clean")
        else:
            self._start_loop(tiered, "clean", self._clean_once)
        self._start_loop(tiered, "expire", self._expire_once)

    def _start_loop(
        self, tiered: _Tiered, name: str, once: Callable[[_Tiered], Coroutine[Any, None, bool]]
    ) -> None:
        if name not in tiered.loops and not self._is_closed:
            tiered.loops[name] = self._tasks.start(
                f"{name} of the remote log of {tiered.id}", self._run(tiered, once)
            )

    async def _run(self, tiered: _Tiered, once: Callable[[_Tiered], Coroutine[Any, None, bool]]) -> None:
        """One pass after another. A failure of one pass does not end them."""
        await self._tasks.sleep(0)  # the image that brought the role is applied first
        while True:
            delay_ms = self._interval_ms
            try:
                if self._metadata.is_ready(tiered.id):
                    if await once(tiered):
                        delay_ms = 0
                else:
                    delay_ms = min(self._backoff_ms, self._interval_ms)
            except RemoteStorageNotReadyException:
                delay_ms = min(self._backoff_ms, self._interval_ms)
            except RetriableRemoteStorageException as error:
                logger.info("[RemoteLogManager partition=%s] will try again: %s", tiered.id, error)
            except (RemoteStorageException, OSError, LogRefused, BatchCorrupt) as error:
                logger.warning("[RemoteLogManager partition=%s] %s", tiered.id, error)
            except Exception as error:
                _report_unexpected(f"the remote log of {tiered.id}", error)
            await self._tasks.sleep(delay_ms)

    def on_image(self) -> None:
        """Take over other sizes of thread pools."""
        for limit, name in (
            (self._copies, COPIERS),
            (self._deletions, DELETERS),
            (self._reads, READERS),
            (self._follower_states, FOLLOWERS),
        ):
            limit.resize(self._settings.get_int(name))

    def close(self) -> None:
        """Ends all loops. Calls of the store that are in progress end by themselves."""
        self._is_closed = True
        for tiered in self._tiered.values():
            tiered.stop()

    # Followers

    async def _follow_once(self, tiered: _Tiered) -> bool:
        return await self._note_copied(tiered) is None

    async def _note_copied(self, tiered: _Tiered) -> int | None:
        """Returns the last offset that is copied. None if the log has changed meanwhile."""
        log, epochs = tiered.log, tiered.log.epoch_entries
        end_offset, start_offset = log.log_end_offset, log.local_log_start_offset
        if log.config.compact:
            copied = core_rules.covered_by(self._metadata.pieces(tiered.id), epochs, end_offset, start_offset)
            log.highest_offset_in_remote_storage = copied
            return copied
        highest = core_rules.find_highest_remote_offset(
            epochs, end_offset, partial(self._metadata.highest_offset_for_epoch, tiered.id)
        ).offset
        copied = await in_turns(
            core_rules.covered_up_to(
                epochs, end_offset, start_offset, highest, partial(self._segment_of_epoch, tiered.id, epochs)
            )
        )
        if tiered.log is not log or log.epoch_entries != epochs or log.log_end_offset < end_offset:
            return None
        if copied < highest:
            log.highest_offset_in_remote_storage = copied
        log.note_copied_to(copied)
        return copied

    # Copies

    async def _copy_once(self, tiered: _Tiered) -> bool:
        """Copy what is due. Returns whether there may be more."""
        if tiered.custom_metadata_is_too_large:
            return False
        async with self._copies:
            log = tiered.log
            if not tiered.start_is_known:
                await self._find_log_start(tiered)
            copied = await self._note_copied(tiered)
            if copied is None:
                return True
            self._note_copy_lag(tiered, log)
            last_stable_offset = log.last_stable_offset
            if log.config.compact:
                last_stable_offset = min(
                    last_stable_offset,
                    core_rules.copyable_up_to(log.cleaned_to, tiered.end_offset_at_first),
                )
            if copied + 1 >= last_stable_offset:
                return False
            from_offset = max(copied + 1, log.local_log_start_offset)
            segments = log.segments_from(from_offset, LOOKED_AT_ONCE + 1)
            await self._learn_ages(log, segments)
            config = log.config
            lag_ms = core_rules.copy_lag(
                config.remote_copy_lag_ms, config.local_retention_ms, config.retention_ms
            )
            lag_bytes = core_rules.copy_lag(
                config.remote_copy_lag_bytes, config.local_retention_bytes, config.retention_bytes
            )
            counts_what_follows = lag_ms != 0 and lag_bytes > 0
            rest = [
                _facts_of(each)
                for each in (log.segments_from(from_offset) if counts_what_follows else segments)
            ]
            candidates = core_rules.candidate_log_segments(
                rest,
                from_offset=from_offset,
                last_stable_offset=last_stable_offset,
                copy_lag_ms=lag_ms,
                copy_lag_bytes=lag_bytes,
                now_ms=self._clock.now_ms(),
            )[:LOOKED_AT_ONCE]
            by_base = {each.base_offset: each for each in segments}
            for candidate in candidates:
                if self._is_copied(tiered, log, candidate):
                    continue
                while wait_ms := self._copy_throttle_ms():
                    await self._tasks.sleep(wait_ms)
                segment = by_base.get(candidate.segment.base_offset)
                if segment is None or not self._is_unchanged(tiered, log, segment, segment.truncations):
                    return False
                self._copy_quota.record(candidate.segment.size, self._clock.monotonic_ms())
                if not await self._copy_segment(tiered, log, segment, candidate.next_offset):
                    return False
                self._note_copy_lag(tiered, log)
            return len(candidates) == LOOKED_AT_ONCE

    def _note_copy_lag(self, tiered: _Tiered, log: UnifiedLog) -> None:
        local = _only_local(log, log.highest_offset_in_remote_storage)
        tiered.state.copy_lag_segments = max(len(local) - 1, 0)
        tiered.state.copy_lag_bytes = sum([each.size for each in local[:-1]])

    def _is_copied(self, tiered: _Tiered, log: UnifiedLog, candidate: Candidate) -> bool:
        """Behind a copy that is gone, others may still be there."""
        start_offset, next_offset = candidate.segment.base_offset, candidate.next_offset
        found = self._served(tiered.id, log, start_offset)
        return (
            found is not None
            and found.metadata.start_offset == start_offset
            and found.metadata.end_offset + 1 == found.next_offset == next_offset
        )

    async def _find_log_start(self, tiered: _Tiered) -> None:
        log, epochs = tiered.log, tiered.log.epoch_entries
        start = log.local_log_start_offset
        copies = self._metadata.list_remote_log_segments(tiered.id)
        if log.config.compact:
            pieces = self._metadata.pieces(tiered.id)
            start = min(start, pieces[0].start_offset) if pieces else start
        elif copies:
            # There may be very many, which would hold up the loop.
            start = await self._in_thread(partial(core_rules.find_log_start_offset, epochs, start, copies))
        if tiered.log is log and log.epoch_entries == epochs and start <= log.high_watermark:
            if log.increment_log_start_offset(start):
                self._log_start_moved(tiered.core)
            tiered.start_is_known = True

    async def _learn_ages(self, log: UnifiedLog, segments: Sequence[LogSegment]) -> None:
        ages = log.ages_of(segments[:-1])
        if ages is not None:
            await self._in_thread(ages.run)
            ages.finish()

    def _is_unchanged(self, tiered: _Tiered, log: UnifiedLog, segment: LogSegment, truncations: int) -> bool:
        """Whether this node still leads in the same epoch, and the segment is what it was."""
        return (
            self._leads(tiered, log)
            and segment.truncations == truncations
            and log.has_closed_segment(segment)
        )

    def _leads(self, tiered: _Tiered, log: UnifiedLog) -> bool:
        return (
            self._tiered.get((tiered.id.topic_id, tiered.id.partition)) is tiered
            and tiered.core.is_leader
            and tiered.core.leader_epoch == tiered.leader_epoch
            and tiered.core.log is log
        )

    async def _copy_segment(
        self, tiered: _Tiered, log: UnifiedLog, segment: LogSegment, next_offset: int
    ) -> bool:
        """Copy a closed segment. Returns whether the next one may follow."""
        if log.has_unfinished_snapshot or segment.indexes.wait_for_their_files():
            return False
        truncations, size, cleaned_to = segment.truncations, segment.size, log.cleaned_to
        snapshot: str | bytes | None = log.snapshot_path(next_offset)
        if snapshot is None:
            snapshot = await self._in_thread(log.snapshot_maker(next_offset))
            if not self._is_unchanged(tiered, log, segment, truncations):
                return False
        txn_path = segment.stem + TXN_INDEX_SUFFIX
        has_aborted = self._disk.exists(txn_path) and self._disk.file_size(txn_path) > 0
        epochs = self._epochs_of(log)
        own_epochs = core_rules.epochs_in_range(epochs, segment.base_offset, next_offset)
        if not own_epochs:
            raise RemoteStorageException(
                f"the records from offset {segment.base_offset} on have no leader epoch"
            )
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(tiered.id, self._uuid()),
            segment.base_offset,
            next_offset - 1,
            segment.retention_timestamp_ms(),
            self._node_id,
            self._clock.now_ms(),
            size,
            leader_epochs(own_epochs),
            txn_idx_empty=not has_aborted,
        )
        data = LogSegmentData(
            segment.stem + LOG_SUFFIX,
            segment.stem + INDEX_SUFFIX,
            segment.stem + TIME_INDEX_SUFFIX,
            txn_path if has_aborted else None,
            snapshot,
            format_epochs(core_rules.epochs_in_range(epochs, -1, next_offset)),
        )
        tiered.being_copied.add(metadata.remote_log_segment_id)
        try:
            await self._metadata.add_remote_log_segment_metadata(metadata)
            if log.config.compact and self._is_covered(tiered, log, metadata):
                # A newer leader has copied this part, and may have cleaned it since.
                await self._delete(metadata)
                return False
            traffic = self.traffic.of(tiered.id.topic)
            custom = await self._copied(metadata, data, traffic)
            if custom is not None and len(custom) > self._custom_metadata_max_bytes:
                tiered.custom_metadata_is_too_large = True
                traffic.copy_errors += 1
                logger.error(
                    "[RemoteLogManager partition=%s] custom metadata of %d bytes exceeds %d; copying stops",
                    tiered.id,
                    len(custom),
                    self._custom_metadata_max_bytes,
                )
                await self._delete(metadata)
                return False
            if not self._is_unchanged(tiered, log, segment, truncations):
                await self._delete(metadata)
                return False
            if custom is None and log.config.compact:
                custom = mark_bytes(CompactedMark(cleaned_to, tiered.leader_epoch))
            await self._metadata.update_remote_log_segment_metadata(
                self._update(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom)
            )
            traffic.copied_bytes += size
            # A newer leader may have taken the copy for a failed one. Then it does not count.
            found = self._segment_at(tiered.id, log, next_offset - 1)
            if found is None or found.remote_log_segment_id != metadata.remote_log_segment_id:
                return False
            log.note_copied_to(next_offset - 1)
            logger.info(
                "Copied %s to remote storage with segment-id: %s",
                data.log_segment,
                found.remote_log_segment_id,
            )
            return True
        finally:
            tiered.being_copied.discard(metadata.remote_log_segment_id)

    def _is_covered(self, tiered: _Tiered, log: UnifiedLog, metadata: RemoteLogSegmentMetadata) -> bool:
        pieces = self._metadata.pieces(tiered.id)
        start_offset, end_offset = metadata.start_offset, log.log_end_offset
        return (
            core_rules.covered_by(pieces, log.epoch_entries, end_offset, start_offset) >= metadata.end_offset
        )

    async def _copied(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, traffic: RemoteTopicTraffic
    ) -> bytes | None:
        """Upload and count. What is left of a copy that failed for good is deleted."""
        traffic.copies += 1
        try:
            return await self._upload(metadata, data)
        except RetriableRemoteStorageException:
            raise
        except RemoteStorageException:
            traffic.copy_errors += 1
            await self._delete(metadata)
            raise

    def _upload(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Deferred[bytes | None]:
        upload = self._in_thread(partial(self._storage.copy_log_segment_data, metadata, data))
        self._uploads[metadata.remote_log_segment_id] = upload
        upload.on_done(partial(self._uploaded, metadata.remote_log_segment_id))
        return upload

    def _uploaded(self, segment_id: RemoteLogSegmentId, _: Deferred[bytes | None]) -> None:
        del self._uploads[segment_id]

    # Cleanings of compacted topics

    async def _clean_once(self, tiered: _Tiered) -> bool:
        """Clean the remote part if enough of it is new. Returns whether there may be more."""
        cleaner, log = self._cleaner(), tiered.log
        if cleaner is None or tiered.id in self._clearing:
            return False
        if tiered.cleaning_rest:
            tiered.cleaning_rest -= 1
            return False
        async with self._cleanings:
            plan = await self._in_thread(
                partial(
                    cleaning.plan,
                    list(self._metadata.pieces(tiered.id)),
                    self._metadata.list_remote_log_segments(tiered.id),
                    frozenset(tiered.being_copied),
                    log.epoch_entries,
                    log.log_start_offset,
                    log.config.min_cleanable_dirty_ratio,
                )
            )
            if plan is None or not self._leads(tiered, log):
                return False
            tiered.cleanings_failed += 1
            tiered.cleaning_rest = min(2 ** (tiered.cleanings_failed - 1), CLEANING_RESTS_MOST)
            try:
                is_more = await self._clean(tiered, log, plan, cleaner)
                tiered.cleanings_failed = tiered.cleaning_rest = 0
                return is_more
            except (CleaningStopped, RecordMalformed, DecompressionFailed) as error:
                logger.warning(
                    "[RemoteLogManager partition=%s] cleaning the remote part: %s", tiered.id, error
                )
                return False

    async def _clean(self, tiered: _Tiered, log: UnifiedLog, plan: Plan, cleaner: RemoteCleaner) -> bool:
        staging = Staging(self._disk, log.directory, plan.pieces, self._reader.batches, cleaner.pace())
        steps: list[Deferred[Any]] = []
        work: CleaningWork | None = None

        def step(job: Callable[[], T]) -> Deferred[T]:
            done = self._in_thread(job)
            steps[:] = [done]
            return done

        try:
            await step(staging.begin)
            aborted = await step(partial(cleaning.aborted_within, self._reader, plan))
            ended_later, _ = log.aborted_entries(plan.pieces[0].start_offset, plan.end_offset)
            config = log.config
            job = CleaningJob(
                staging.directory,
                staging.segments(),
                plan.first_dirty_offset,
                plan.end_offset,
                (),
                list(dict.fromkeys([*aborted, *ended_later])),
                last_records_of(log.producer_state),
                self._clock.now_ms(),
                config.delete_retention_ms,
                config.internal_segment_bytes or config.segment_bytes,
                config.segment_index_bytes,
                config.index_interval_bytes,
                cleaner.limits(),
                is_staged=True,
            )
            work = cleaner.work_on_staged(job, staging.pace, staging)
            await step(work.build_map)
            first = 0
            for group in work.groups:
                suffixes = await step(partial(work.clean_group, group))
                first += len(group)
                snapshot = await step(
                    partial(cleaning.snapshot_after, self._storage, self._reader, plan.pieces[:first])
                )
                sources = plan.pieces[first - len(group) : first]
                epochs = cleaning.epochs_of(plan.pieces[:first])
                data = staging.cleaned(group[0].base_offset, suffixes, snapshot, format_epochs(epochs))
                if not await self._replace(tiered, log, sources, epochs, work.end_offset, data):
                    return False
            await step(work.finish)
            logger.info(
                "[RemoteLogManager partition=%s] the remote part is clean to %d", tiered.id, work.end_offset
            )
            return work.end_offset < plan.end_offset
        finally:
            staging.is_stopped = True
            self._clearing.add(tiered.id)
            done = self._tasks.start("ending a cleaning", self._clear_away(staging, work, steps))
            done.on_done(lambda _: self._clearing.discard(tiered.id))

    async def _clear_away(
        self, staging: Staging, work: CleaningWork | None, steps: Sequence[Deferred[Any]]
    ) -> None:
        await when_all_done(steps)
        if work is not None:
            await self._in_thread(work.close)
        try:
            await self._in_thread(staging.remove)
        except OSError as error:
            logger.info("%s is removed later: %s", staging.directory, error)

    async def _replace(
        self,
        tiered: _Tiered,
        log: UnifiedLog,
        sources: Sequence[Piece],
        epochs: Epochs,
        cleaned_to: int,
        data: LogSegmentData,
    ) -> bool:
        """Make a copy in the place of some pieces, of which it has what a cleaning has left. Returns whether it is there. What it
        replaces is deleted as what is not read any more."""
        start_offset, next_offset = sources[0].start_offset, sources[-1].next_offset
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(tiered.id, self._uuid()),
            start_offset,
            next_offset - 1,
            max([piece.metadata.max_timestamp_ms for piece in sources]),
            self._node_id,
            self._clock.now_ms(),
            self._disk.file_size(data.log_segment),
            leader_epochs(core_rules.epochs_in_range(epochs, start_offset, next_offset)),
            txn_idx_empty=data.transaction_index is None,
        )
        tiered.being_copied.add(metadata.remote_log_segment_id)
        try:
            await self._metadata.add_remote_log_segment_metadata(metadata)
            if not self._leads(tiered, log) or not self._are_read(tiered, sources):
                await self._delete(metadata)
                return False
            traffic = self.traffic.of(tiered.id.topic)
            custom = await self._copied(metadata, data, traffic)
            if not self._leads(tiered, log) or not self._are_read(tiered, sources):
                await self._delete(metadata)
                return False
            if custom is None:
                clean_before = min([mark_of(piece.metadata).cleaned_to for piece in sources])
                custom = mark_bytes(CompactedMark(max(cleaned_to, clean_before), tiered.leader_epoch))
            await self._metadata.update_remote_log_segment_metadata(
                self._update(metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom)
            )
            traffic.copied_bytes += metadata.segment_size_in_bytes
            piece = self._metadata.piece_at(tiered.id, start_offset)
            return (
                piece is not None and piece.metadata.remote_log_segment_id == metadata.remote_log_segment_id
            )
        finally:
            tiered.being_copied.discard(metadata.remote_log_segment_id)

    def _are_read(self, tiered: _Tiered, pieces: Sequence[Piece]) -> bool:
        found = [self._metadata.piece_at(tiered.id, piece.start_offset) for piece in pieces]
        return found == list(pieces)

    # Deletions

    async def _expire_once(self, tiered: _Tiered) -> bool:
        async with self._deletions:
            log = tiered.log
            if not tiered.start_is_known:
                await self._find_log_start(tiered)
            # Both at one moment: of a copy that ends from now on, `copies` tells only that it has begun.
            copies, being_copied = (
                self._metadata.list_remote_log_segments(tiered.id),
                frozenset(tiered.being_copied),
            )
            state = tiered.state
            state.copies = len(copies)
            if not copies:
                state.size_bytes = state.deletion_lag_bytes = state.deletion_lag_segments = 0
                return False
            # A leader that does not copy learns it here.
            if await self._note_copied(tiered) is None:
                return True
            epochs = log.epoch_entries
            # What is local and copied counts once. What is below a copy goes with it, so it does not count, copied or not.
            highest, pieces = log.highest_offset_in_remote_storage, None
            if log.config.compact:
                pieces = list(self._metadata.pieces(tiered.id))
            else:
                highest = core_rules.find_highest_remote_offset(
                    epochs, log.log_end_offset, partial(self._metadata.highest_offset_for_epoch, tiered.id)
                ).offset
            config = log.config
            retention = Retention(
                epochs,
                log.log_start_offset,
                log.log_end_offset,
                config.retention_ms if config.delete else -1,
                config.retention_bytes if config.delete else -1,
                sum([each.size for each in _only_local(log, highest)]),
                self._clock.now_ms(),
            )
            # There may be very many copies, which would hold up the loop.
            expired = await self._in_thread(
                partial(core_rules.expired_segments, retention, copies, being_copied, pieces)
            )
            state.size_bytes = await self._in_thread(partial(core_rules.size_of_finished, copies))
            state.deletion_lag_segments = len(expired.segments)
            state.deletion_lag_bytes = sum([each.segment_size_in_bytes for each in expired.segments])
            if tiered.log is not log or log.epoch_entries != retention.epochs:
                return True
            if expired.log_start_offset is not None and log.increment_log_start_offset(
                min(expired.log_start_offset, log.high_watermark)
            ):
                self._log_start_moved(tiered.core)
            refusal: RemoteStorageException | None = None
            for metadata in expired.segments:
                if not tiered.core.is_leader or tiered.core.leader_epoch != tiered.leader_epoch:
                    return False
                refused = await self._delete_unless_refused(metadata)
                if refused is not None:
                    refusal = refusal or refused
                    continue
                state.deletion_lag_segments -= 1
                state.deletion_lag_bytes -= metadata.segment_size_in_bytes
            if refusal is not None:
                raise refusal
        return False

    async def _end_reads(self, metadata: RemoteLogSegmentMetadata) -> None:
        """The first step of a deletion, which needs no store. A compacted log that is not tiered drops tombstones, and a copy from
        before would bring back what they delete if the topic is tiered again while the store fails."""
        if metadata.state is not RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            await self._metadata.update_remote_log_segment_metadata(
                self._update(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, metadata.custom_metadata)
            )

    async def _delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        states = RemoteLogSegmentState
        await self._end_reads(metadata)
        upload = self._uploads.get(metadata.remote_log_segment_id)
        if upload is not None:  # what it stores later would stay for good
            await when_all_done([upload])
        traffic = self.traffic.of(metadata.topic_id_partition.topic)
        traffic.deletions += 1
        try:
            await self._in_thread(partial(self._storage.delete_log_segment_data, metadata))
        except RetriableRemoteStorageException:
            raise
        except RemoteStorageException:
            traffic.deletion_errors += 1
            raise
        self.indexes.remove([metadata.remote_log_segment_id.id])
        await self._metadata.update_remote_log_segment_metadata(
            self._update(metadata, states.DELETE_SEGMENT_FINISHED, metadata.custom_metadata)
        )

    async def _delete_unless_refused(
        self, metadata: RemoteLogSegmentMetadata
    ) -> RemoteStorageException | None:
        """Returns why the copy stays: a store may keep one for good. Raises what concerns other copies too."""
        try:
            await self._delete(metadata)
        except (RetriableRemoteStorageException, RemoteResourceNotFoundException):
            raise
        except RemoteStorageException as refusal:
            return refusal
        return None

    async def _mark_and_delete(self, partition: TopicIdPartition) -> None:
        """The mark lets another node, or the next start of this one, finish the deletion."""
        delay_ms = self._backoff_ms
        is_marked = False
        while not self._is_closed and not is_marked:
            try:
                if not self._metadata.list_remote_log_segments(partition):
                    break
                await self._record_deletion(partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
                is_marked = True
            except RemoteResourceNotFoundException:
                break
            except RemoteStorageException as error:
                logger.info("the deletion of the remote log of %s is not recorded yet: %s", partition, error)
            except Exception as error:
                _report_unexpected(f"recording the deletion of the remote log of {partition}", error)
            if not is_marked:
                await self._tasks.sleep(delay_ms)
                delay_ms = min(delay_ms * 2, self._interval_ms)
        await self._delete_partition(partition, is_marked=is_marked)

    def _record_deletion(
        self, partition: TopicIdPartition, state: RemotePartitionDeleteState
    ) -> Deferred[None]:
        return self._metadata.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(partition, state, self._clock.now_ms(), self._node_id)
        )

    async def _delete_partition(self, partition: TopicIdPartition, *, is_marked: bool) -> None:
        """Delete all that is in the remote storage, until nothing is left, this node ends, or the partition is tiered again: what
        is copied then is not to be deleted. `is_marked`: the metadata say that it is to be deleted."""
        key = partition.topic_id, partition.partition
        delay_ms, is_started = self._backoff_ms, False
        states = RemotePartitionDeleteState
        while not self._is_closed and key not in self._tiered:
            try:
                if is_marked and not is_started:
                    await self._record_deletion(partition, states.DELETE_PARTITION_STARTED)
                    is_started = True
                refusal: RemoteStorageException | None = None
                async with self._deletions:
                    for metadata in self._metadata.list_remote_log_segments(partition):
                        if key in self._tiered:
                            break
                        await self._end_reads(metadata)
                    for metadata in self._metadata.list_remote_log_segments(partition):
                        if key in self._tiered:
                            break
                        refusal = await self._delete_unless_refused(metadata) or refusal
                if refusal is not None:
                    raise refusal
                if not is_marked:
                    break
                # The record of a copy may have been on its way.
                if not self._metadata.list_remote_log_segments(partition):
                    await self._record_deletion(partition, states.DELETE_PARTITION_FINISHED)
                    break
            except RemoteResourceNotFoundException:
                break
            except RemoteStorageException as error:
                logger.info("the remote log of %s is not deleted yet: %s", partition, error)
            except Exception as error:
                _report_unexpected(f"the deletion of the remote log of {partition}", error)
            await self._tasks.sleep(delay_ms)
            delay_ms = min(delay_ms * 2, self._interval_ms)
        if key not in self._tiered:
            self._metadata.on_stop_partitions([partition])

    async def _see_to(self, partition: TopicIdPartition) -> None:
        """Finish a deletion if whoever has begun it does not."""
        await self._tasks.sleep(TAKEN_OVER_AFTER_MS)
        if self._metadata.is_deletion_unfinished(partition) and not self._is_closed:
            self._metadata.on_partition_leadership_changes([partition], [])
            await self._take_over(partition, is_marked=True)

    async def _take_over(self, partition: TopicIdPartition, *, is_marked: bool) -> None:
        """Delete what the leader of a deleted topic has left. As long as it gets less, the leader is at work."""
        left: int | None = None
        while not self._is_closed:
            await self._tasks.sleep(TAKEN_OVER_AFTER_MS)
            try:
                copies = len(self._metadata.list_remote_log_segments(partition))
            except RemoteStorageNotReadyException:
                continue
            except RemoteResourceNotFoundException:
                copies, is_marked = 0, False
            except Exception as error:
                _report_unexpected(f"taking over the deletion of the remote log of {partition}", error)
                continue
            if not copies and not is_marked:
                self._metadata.on_stop_partitions([partition])
                return
            if copies == left:
                logger.info("deleting the remote log of %s, which its leader has left", partition)
                await self._delete_partition(partition, is_marked=True)
                return
            left = copies

    def _update(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom: bytes | None
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            metadata.remote_log_segment_id, self._clock.now_ms(), custom, state, self._node_id
        )

    # Reads

    def fetch_throttle_ms(self) -> int:
        """How long reads of consumers wait for the quota on them."""
        quota = self._fetch_quota
        quota.bytes_per_second = self._settings.get_int("remote.log.manager.fetch.max.bytes.per.second")
        return quota.throttle_ms(self._clock.monotonic_ms())

    def _copy_throttle_ms(self) -> int:
        quota = self._copy_quota
        quota.bytes_per_second = self._settings.get_int("remote.log.manager.copy.max.bytes.per.second")
        return quota.throttle_ms(self._clock.monotonic_ms())

    async def read(
        self, core: Core, offset: int, max_bytes: int, *, minimum_one_batch: bool, read_committed: bool
    ) -> RemoteRead:
        """Records from an offset below the local log start on. Raises LogRefused OFFSET_OUT_OF_RANGE if the remote storage
        does not have it, RemoteStorageException, and Overloaded if too many reads wait."""
        traffic = self.traffic.of(core.topic_partition.topic)
        traffic.fetches += 1
        try:
            found = await self._read(core, offset, max_bytes, minimum_one_batch, read_committed)
        except (LogRefused, Overloaded, Cancelled, RemoteStorageNotReadyException):
            raise
        except Exception:
            traffic.fetch_errors += 1
            raise
        traffic.fetched_bytes += len(found.records)
        return found

    async def _read(
        self, core: Core, offset: int, max_bytes: int, minimum_one_batch: bool, read_committed: bool
    ) -> RemoteRead:
        partition = self._id_of(core)
        log: UnifiedLog = core.log
        async with self._reads:
            served = self._served(partition, log, offset)
            if served is None:
                raise LogRefused(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} does not exist in the remote tier of {partition}",
                )
            found: RemoteRecords | None = None
            passed_to = offset
            for _ in range(SEGMENTS_PASSED_MAX):
                if served is None or served.next_offset <= passed_to:
                    break
                metadata, end_offset = served
                try:
                    found = await self._in_thread(
                        partial(
                            self._reader.read, metadata, passed_to, end_offset, max_bytes, minimum_one_batch
                        )
                    )
                except RemoteStorageException:
                    served = self._served(partition, log, passed_to)
                    if (
                        served is None
                        or served.metadata.remote_log_segment_id == metadata.remote_log_segment_id
                    ):
                        raise
                    continue  # a cleaning has replaced it meanwhile
                if found is not None:
                    break
                passed_to = end_offset
                served = self._served(partition, log, passed_to)
            if found is None:
                return RemoteRead(memoryview(_compacted_away(log, offset, passed_to)), [])
            if not found.records:
                return RemoteRead(NO_RECORDS, [])
            self._fetch_quota.record(len(found.records), self._clock.monotonic_ms())
            if not read_committed:
                return RemoteRead(found.records, [])
            records = found.records
            # What lies before the first batch was compacted away. A bound there would leave out the transaction of that batch.
            first_offset = max(offset, parse_header(records, 0).base_offset)
            aborted, end_offset = await self._aborted(
                partition, log, metadata, first_offset, found.next_offset
            )
            if end_offset < found.next_offset:
                records = await self._in_thread(partial(records_before, records, end_offset))
            return RemoteRead(records, aborted)

    async def _aborted(
        self,
        partition: TopicIdPartition,
        log: UnifiedLog,
        metadata: RemoteLogSegmentMetadata,
        offset: int,
        upper_bound_offset: int,
    ) -> tuple[list[AbortedTransaction], int]:
        """Those of the range, and its upper bound. If there are more than ABORTED_MAX, the bound is lower, but above the offset.
        There may be more all the same: of transactions that were open together."""
        found: list[AbortedTxn] = []
        at: RemoteLogSegmentMetadata | None = metadata
        while at is not None:
            if not at.txn_idx_empty:
                some, is_complete = await self._in_thread(
                    partial(
                        self._reader.aborted_transactions,
                        at,
                        offset,
                        upper_bound_offset,
                        ABORTED_MAX - len(found),
                    )
                )
                found += some
                if is_complete:
                    break
            at = self._next_with_aborted(partition, log, at.end_offset + 1)
        else:
            # Transactions that end in the local files.
            ended, _ = log.aborted_entries(offset, upper_bound_offset)
            known = set(found)
            found += [entry for entry in ended if entry not in known]
        if len(found) >= ABORTED_MAX and offset < found[-1].last_stable_offset < upper_bound_offset:
            # Transactions that ended after the last one began at or after this offset.
            upper_bound_offset = found[-1].last_stable_offset
            found = [entry for entry in found if entry.first_offset < upper_bound_offset]
        found.sort(key=lambda entry: (entry.first_offset, entry.last_offset))
        aborted = [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]
        return aborted, upper_bound_offset

    async def find_offset(self, core: Core, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a timestamp that lies below the local log start. Raises as `read`."""
        partition = self._id_of(core)
        log: UnifiedLog = core.log
        offset = log.log_start_offset
        while offset < log.local_log_start_offset:
            served = self._served(partition, log, offset)
            if served is None or served.next_offset <= offset:
                return None
            at, end_offset = served
            if at.max_timestamp_ms >= timestamp_ms:
                # Only now, so that no search for what is local waits for a slow store.
                async with self._reads:
                    found = await self._in_thread(
                        partial(self._reader.find_by_timestamp, at, timestamp_ms, offset)
                    )
                if found is not None and found.offset < end_offset:
                    return found
            offset = end_offset
            await pause(core_rules.LOOKUP_COST + len(log.epoch_entries))
        return None

    async def aux_state(
        self, core: Core, epoch: int, offset: int, epoch_end_offset: int
    ) -> RemoteLogAuxState:
        """With what a follower begins whose leader has this offset, of this epoch, in the remote storage only. Of the leader
        this epoch ends at `epoch_end_offset`. Raises RemoteStorageException."""
        partition = self._id_of(core)
        async with self._follower_states:
            if core.log.config.compact:
                piece = self._metadata.piece_at(partition, offset)
                metadata = None if piece is None else piece.metadata
            else:
                metadata = self._metadata.remote_log_segment_metadata(partition, epoch, offset)
            if metadata is None:
                raise RemoteStorageException(f"no remote segment has offset {offset} of epoch {epoch}")
            checkpoint, snapshot = [
                await self._in_thread(partial(fetch_whole, self._storage, metadata, each))
                for each in (IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT)
            ]
            try:
                epochs = parse_epochs(checkpoint)
            except CheckpointCorrupt as damage:
                raise RemoteStorageException(
                    f"the leader epochs of {metadata.remote_log_segment_id}: {damage}"
                ) from damage
            start, end = metadata.start_offset, metadata.end_offset + 1
            if tuple(core_rules.epochs_in_range(epochs, start, end)) != metadata.segment_leader_epochs:
                raise RemoteStorageException(
                    f"the leader epochs of {metadata.remote_log_segment_id} are those of another segment"
                )
            # After an unclean election the copy may go on with records that the leader has not.
            if core.log.config.compact:
                if metadata.end_offset >= epoch_end_offset and mark_of(metadata).leader_epoch <= epoch:
                    raise RemoteStorageException(f"{metadata.remote_log_segment_id} is of another history")
                return RemoteLogAuxState(end, epochs, snapshot)
            common_end = max(min(metadata.end_offset_of_epoch(epoch) + 1, epoch_end_offset), offset + 1)
            if common_end < end:
                epochs = core_rules.epochs_in_range(epochs, -1, common_end)
                snapshot = await self._producers_at(partition, metadata, epochs, common_end)
            return RemoteLogAuxState(common_end, epochs, snapshot)

    async def _producers_at(
        self, partition: TopicIdPartition, metadata: RemoteLogSegmentMetadata, epochs: Epochs, offset: int
    ) -> bytes:
        """The snapshot of producers at an offset within a copy: from an earlier copy's snapshot, and the records since then."""
        state = ProducerStateManager()
        replayed = [metadata]
        while True:
            start = replayed[-1].start_offset
            earlier = self._segment_of_epoch(partition, epochs, start - 1)
            if earlier is None:
                state.clear(start)
                break
            end = earlier.end_offset + 1
            if core_rules.common_end_offset(earlier, epochs, offset, start - 1) == end:
                snapshot = await self._in_thread(
                    partial(fetch_whole, self._storage, earlier, IndexType.PRODUCER_SNAPSHOT)
                )
                try:
                    state.load(decode_snapshot(snapshot), end)
                except SnapshotCorrupt as damage:
                    raise RemoteStorageException(
                        f"the producers of {earlier.remote_log_segment_id}: {damage}"
                    ) from damage
                break
            replayed.append(earlier)
        for each in reversed(replayed):
            end = core_rules.common_end_offset(each, epochs, offset, state.end_offset)
            await self._in_thread(partial(self._reader.replay, each, state, end))
        return encode_snapshot(state.producers.values())

    async def follower_state(
        self, core: Core, epoch: int, offset: int, epoch_end_offset: int
    ) -> RemoteLogAuxState | None:
        """Like `aux_state`. None if it cannot be read now."""
        traffic = self.traffic.of(core.topic_partition.topic)
        traffic.aux_states += 1
        try:
            return await self.aux_state(core, epoch, offset, epoch_end_offset)
        except RemoteStorageException as error:
            traffic.aux_state_errors += 1
            logger.warning("[RemoteLogManager partition=%s] %s", core.topic_partition, error)
            return None

    def _id_of(self, core: Core) -> TopicIdPartition:
        name = core.topic_partition
        return TopicIdPartition(core.topic_id, name.topic, name.partition)

    def _served(self, partition: TopicIdPartition, log: UnifiedLog, offset: int) -> _Served | None:
        """The copy that has an offset, and up to where it is read."""
        epochs = log.epoch_entries
        if log.config.compact:
            piece = self._metadata.piece_at(partition, offset)
            if piece is None:
                return None
            trusted_up_to = core_rules.trusted_up_to(piece.metadata, epochs)
            return _Served(piece.metadata, min(piece.next_offset, trusted_up_to))
        metadata = self._segment_of_epoch(partition, epochs, offset)
        if metadata is None:
            return None
        # After an unclean election a copy may go on with records that this log has not.
        return _Served(metadata, core_rules.common_end_offset(metadata, epochs, log.log_end_offset, offset))

    def _segment_at(
        self, partition: TopicIdPartition, log: UnifiedLog, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        served = self._served(partition, log, offset)
        return None if served is None else served.metadata

    def _segment_of_epoch(
        self, partition: TopicIdPartition, epochs: Sequence[tuple[int, int]], offset: int
    ) -> RemoteLogSegmentMetadata | None:
        epoch = core_rules.epoch_for_offset(epochs, offset)
        return None if epoch is None else self._metadata.remote_log_segment_metadata(partition, epoch, offset)

    def _epochs_of(self, log: UnifiedLog) -> Epochs:
        if log.config.compact:
            return core_rules.with_epochs_from(log.epoch_entries, log.log_start_offset)
        return log.epoch_entries

    def _next_with_aborted(
        self, partition: TopicIdPartition, log: UnifiedLog, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        if log.config.compact:
            pieces = self._metadata.pieces(partition)
            first_piece = bisect_right(pieces, offset, key=lambda piece: piece.next_offset)
            later = (piece.metadata for piece in pieces[first_piece:])
            return next((each for each in later if not each.txn_idx_empty), None)
        epochs = log.epoch_entries
        first = core_rules.epoch_for_offset(epochs, offset)
        for epoch, start in epochs:
            if first is not None and epoch >= first:
                found = self._metadata.next_segment_with_txn_index(partition, epoch, max(start, offset))
                if found is not None:
                    return found
        return None

    def _in_thread(self, job: Callable[[], T]) -> Deferred[T]:
        return self._workers.submit(job)


def _report_unexpected(what: str, error: Exception) -> None:
    """What passes is no bug, and neither is the end of the node."""
    if isinstance(error, (OSError, Cancelled)) or passes(error):
        logger.info("%s waits: %r", what, error)
    else:
        report(what, error)


def _compacted_away(log: UnifiedLog, offset: int, end_offset: int) -> bytes:
    """A batch without records, as a cleaning leaves it, which takes a consumer beyond offsets that are gone. Otherwise it would
    ask for them for ever. Only a compacted topic has them: of another one a store that loses records would hide the loss."""
    end_offset = min(end_offset, offset + MAX_RELATIVE_OFFSET)
    if end_offset <= offset or not log.config.compact:
        return b""
    batch = assemble(
        b"",
        base_offset=offset,
        leader_epoch=log.epoch_for_offset(end_offset - 1),
        attributes=0,
        last_offset_delta=end_offset - 1 - offset,
        base_timestamp_ms=-1,
        max_timestamp_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return bytes(batch)


def _only_local(log: UnifiedLog, highest_offset: int) -> list[LogSegment]:
    """The segments behind the last copied offset. The last one is active."""
    segments = log.segments_from(max(highest_offset + 1, log.local_log_start_offset))
    if segments and segments[0].base_offset <= highest_offset:
        del segments[0]
    return segments


def _facts_of(segment: LogSegment) -> LocalSegment:
    return LocalSegment(segment.base_offset, segment.size, segment.max_timestamp_ms)
