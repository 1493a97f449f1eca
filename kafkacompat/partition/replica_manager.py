"""Operations on partitions: appends, waits for replication, offsets, deletions of records (ReplicaManager).

It calls logs, and parks and wakes requests. Of a request it knows the batches, and the version where records or errors
depend on it. fetch.py has the fetches, which learn of every advance through `Wakeups.watch`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import forget_locals
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition
from kafkacompat.partition import plain_appends
from kafkacompat.partition.hosted_partitions import HostedPartitions
from kafkacompat.partition.list_offsets import THIS_NODE, Question, Searches, look_up
from kafkacompat.partition.log_syncs import Flushes
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.plain_appends import NEVER_FLUSH, NO_CODEC, takes_records
from kafkacompat.partition.purgatories import delete_records_on_leader
from kafkacompat.partition.service import OffsetLookup, PlainAppends, PlainResult, ProduceResult
from kafkacompat.ports import LogRefused, RefusedAtSight
from kafkacompat.records.batch import BatchCorrupt, ValidatedBatch
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.plain_produce import (
    BatchFacts,
    PlainAllowance,
    PlainFacts,
    allowance_for,
    bounds_of,
    scan_packed,
)
from kafkacompat.records.validate import Allowance, Origin, TooMuchAtOnce, validate_large, validate_produce
from kafkacompat.tasks import Limit, Overloaded, pause
from kafkacompat.wire.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.partition.hosted_partitions import Replicating
    from kafkacompat.partition.remote_fetch import RemoteFetches
    from kafkacompat.partition.service import BuiltAppend
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import (
        Buffer,
        Log,
        ProducerStateEntry,
        TransactionTerms,
        VerificationGuard,
    )

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_ENDS: Mapping[TopicPartition, int] = {}
NO_NAMES = frozenset[str]()
ALL_REPLICAS = -1
READ_ONLY_TEXT = "The topic is a mirror, and takes records from its source only until the mirror is stopped."
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors of a produce request that do not report the log start, as in Kafka."""
WITHOUT_FAILURE = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals of appends that Kafka does not count as failed requests (FailedProduceRequestsPerSec). It counts all others, except
where the partition is not led here or its topic is internal: those are results of `append` without `_refused`."""
Key = tuple[str, int]


USUAL_BYTES = 16 * 1024 * 1024
"""The decompressed body of a batch of usual size."""
DURABLE_WAIT_MS = 5_000
"""For so long the lookup of an offset waits for a log that a kill has left. Its disk may stand still."""
USUAL_AT_ONCE = 8
HUGE_AT_ONCE = 2
"""Batches opened at the same time. Each of the huge ones may use what batch.max.unpacked.bytes allows."""
WAITING_MAX = 1000
"""Waiting batches of each kind. Beyond this the answer is REQUEST_TIMED_OUT, after which a producer retries."""
T = TypeVar("T")


def hides_log_start(refused: LogRefused) -> bool:
    return isinstance(refused, RefusedAtSight) or refused.code in WITHOUT_LOG_START


def _refused(core: Partition, refused: LogRefused, size_bytes: int) -> ProduceResult:
    """The result that tells of a refusal. `size_bytes`: of the records, if they were not opened before."""
    if refused.fault is not None:
        core.traffic.count_fault(refused.fault, len(refused.record_errors))
    if isinstance(refused, RefusedAtSight):
        core.traffic.produces -= 1  # Kafka looks at the structure before it counts an attempt to append
    elif refused.code not in WITHOUT_FAILURE:
        core.traffic.failed_produces += 1
    elif refused.code == ErrorCode.MESSAGE_TOO_LARGE:
        core.traffic.bytes_rejected += size_bytes
    return ProduceResult(
        refused.code,
        log_start_offset=-1 if hides_log_start(refused) else core.log.log_start_offset,
        error_message=refused.message,
        record_errors=refused.record_errors,
    )


class ReplicaManager:
    """PartitionService of partition/service. Used in the loop's thread only."""

    def __init__(
        self,
        services: PartitionServices,
        replication: Replicating | None = None,
        limits: BatchLimits | None = None,
    ) -> None:
        """Without `replication` nothing is followed and the ISR stays as in the metadata."""
        self.hosted = hosted = HostedPartitions(services, replication)
        if replication is not None:
            replication.attach(hosted)
        self.by_name = hosted.by_name
        self.by_id = hosted.by_id
        self.core = hosted.core
        self.core_by_id = hosted.core_by_id
        self.leader_error = hosted.leader_error
        self.replica_error = hosted.replica_error
        self.on_image = hosted.on_image
        self.wakeups = hosted.wakeups
        self.hold_wakeups = self.wakeups.hold
        self.release_wakeups = self.wakeups.release
        self.advanced = self.wakeups.advanced
        self.when_replicated = self.wakeups.produces.when_replicated
        self._flushes = Flushes(services, self.by_name, hosted.new_log_syncs.answers, self.wakeups.budget)
        self.when_flushed = self._flushes.when_flushed
        self._searches = Searches(
            services, lambda core: self.by_id.get((core.topic_id, core.topic_partition.partition))
        )
        self._clock = services.clock
        self._tasks = services.tasks
        self._limits = limits or BatchLimits()
        self.plain_bounds = bounds_of(self._limits)
        self._large_batches = LargeBatches(services, self._limits)
        self.pause = self._large_batches.pause
        self._replication = replication
        self.remote: RemoteFetches | None = None
        """Reads the remote storage, and searches it by time. None without remote.log.storage.system.enable."""

    @property
    def image(self) -> MetadataImage:
        return self.hosted.image

    @property
    def opens_logs(self) -> bool:
        return self.hosted.opens_logs

    # Appends

    def append(
        self,
        partition: TopicPartition,
        records: Buffer | ValidatedBatch | LogRefused,
        acks: int,
        api_version: int,
        internal_allowed: bool,
        terms: TransactionTerms | None = None,
        origin: Origin = Origin.CLIENT,
        allowance: Allowance | None = None,
    ) -> ProduceResult:
        """Validate and append one partition's records. A refusal is in the result.

        Raises TooMuchAtOnce, without any effect, if the records need more of the loop's time than the allowance.
        `validate` then opens them in steps, and its result is passed in their place.
        """
        core = self.by_name.get(partition)
        if core is None or self.hosted.changes:
            core = self.core(partition)
        if core is not None:
            core.traffic.produces += 1
        if partition[0] in INTERNAL_TOPICS and not internal_allowed and self.hosted.is_known(partition):
            return ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if core is None or not core.is_leader:
            return self._not_led(partition, core)
        if core.is_ending_mirror:
            return self._not_led(partition, core)  # it leads soon
        if core.is_read_only:
            return _refused(core, LogRefused(ErrorCode.POLICY_VIOLATION, READ_ONLY_TEXT), 0)
        if acks == ALL_REPLICAS and not core.has_min_isr():
            return _refused(core, LogRefused(ErrorCode.NOT_ENOUGH_REPLICAS), 0)
        if isinstance(records, LogRefused):
            return _refused(
                core, records, 0
            )  # not raised: its trace would lead to this frame, and so to itself
        now_ms = self._clock.now_ms()
        if isinstance(records, ValidatedBatch):
            batch = records
        else:
            try:
                batch = validate_produce(
                    records,
                    core.log.config,
                    now_ms,
                    zstd_allowed=api_version >= FIRST_VERSION_WITH_ZSTD,
                    origin=origin,
                    limits=self._limits,
                    allowance=allowance,
                )
            except LogRefused as refused:
                return _refused(core, refused, len(records))
            except TooMuchAtOnce:
                core.traffic.produces -= 1  # it comes again
                raise
            except OSError as error:  # a codec's library cannot be imported now
                self.hosted.storage_failed(core, error)
                return ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR)
        return self._append_validated(core, batch, now_ms, terms)

    def _append_validated(
        self, core: Partition, batch: ValidatedBatch, now_ms: int, terms: TransactionTerms | None
    ) -> ProduceResult:
        log = core.log
        try:
            info = log.append_as_leader(batch, core.leader_epoch, now_ms, terms)
        except (LogRefused, OSError, BatchCorrupt) as failure:
            return self._not_appended(core, batch.size, failure)
        count = info.last_offset - info.first_offset + 1
        core.traffic.messages_in += count
        core.traffic.bytes_in += batch.size
        if not info.duplicate and log.config.flush_messages != NEVER_FLUSH:
            self._flushes.appended(core, count)
        self._tell_of(core, info.duplicate)
        return ProduceResult(
            NONE,
            info.first_offset,
            info.last_offset,
            info.log_append_time_ms,
            log.log_start_offset,
        )

    def _not_appended(
        self, core: Partition, size_bytes: int, failure: LogRefused | OSError | BatchCorrupt
    ) -> ProduceResult:
        if isinstance(failure, LogRefused):
            return _refused(core, failure, size_bytes)
        if isinstance(failure, OSError):
            self.hosted.storage_failed(core, failure)
        else:
            # The indexes of the active segment cannot be rebuilt. Producers try again, perhaps with another leader.
            logger.error("%s takes no records, it is damaged on disk: %s", core.topic_partition, failure)
        return ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR)

    def _tell_of(self, core: Partition, is_duplicate: bool) -> None:
        """Move the high watermark after an append or a duplicate, and wake those who wait."""
        if core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
            self.advanced(core)
        if not core.alone and not is_duplicate:
            self.wakeups.appended(core)

    def append_built(
        self, topic: str, batch: bytearray, facts: BatchFacts
    ) -> ProduceResult | BuiltAppend | None:
        timestamp_ms, cores = facts[7], list[Partition]()
        summary = facts[3], NO_CODEC, timestamp_ms, timestamp_ms, 0
        if self.hosted.changes or not plain_appends.find_cores(
            self.by_name, None, [(topic, [facts], summary)], NO_NAMES, True, timestamp_ms, cores
        ):
            return None
        results: list[Any] = []
        moved: dict[Key, Partition] = {}
        try:
            is_done = plain_appends.append_known(
                memoryview(batch), cores, [facts], results, moved, self._tell_of
            )
        except (LogRefused, OSError, BatchCorrupt) as failure:
            cores[0].traffic.produces += 1
            return self._not_appended(cores[0], facts[3], failure)
        if is_done is None:
            return None
        if moved:
            self.advanced(cores[0])
        return results[0][0], is_done

    def append_plain(self, frame: memoryview, version: int, request: PlainFacts) -> PlainAppends | None:
        hosted = self.hosted
        if hosted.changes or frame.readonly:
            return None
        _, acks, _, units, all_read, topics = request
        now_ms = self._clock.now_ms()
        by_id = hosted.image.topics_by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else None
        cores: list[Partition] = []
        if not plain_appends.find_cores(
            self.by_name, by_id, topics, INTERNAL_TOPICS, acks == ALL_REPLICAS, now_ms, cores
        ):
            return None
        batches = topics[0][1] if len(topics) == 1 else [each for _, named, _ in topics for each in named]
        if not all_read and not self._take_records(
            cores, batches, allowance_for(units, topics), frame, now_ms
        ):
            return None
        results: list[PlainResult] = []
        needs_look = False
        held = self.hold_wakeups()
        try:
            while True:
                try:
                    are_below = plain_appends.append_known(
                        frame, cores, batches, results, held, self._tell_of
                    )
                except (LogRefused, OSError, BatchCorrupt) as failure:
                    core, facts = cores[len(results)], batches[len(results)]
                    core.traffic.produces += 1
                    result: PlainResult = self._not_appended(core, facts[3], failure)
                else:
                    if are_below is not None:
                        break
                    core, facts = cores[len(results)], batches[len(results)]
                    result = self._append_plain_batch(core, facts, frame, now_ms)
                results.append(result)
                needs_look = True
        finally:
            self.release_wakeups()
        if are_below and not needs_look and not any(self._flushes.awaited):
            return results, NO_ENDS
        ends = {
            core.topic_partition: result[0] + facts[5]
            for core, facts, result in zip(cores, batches, results, strict=True)
            if type(result) is tuple
        }
        return results, ends

    def _append_plain_batch(
        self, core: Partition, facts: BatchFacts, frame: memoryview, now_ms: int
    ) -> PlainResult:
        """Append a batch that needs a closer look."""
        # A disk that fails ends the leadership of its other partitions too.
        if not core.is_leader:
            return self._not_led(core.topic_partition, self.core(core.topic_partition))
        core.traffic.produces += 1
        _, start, end, _, codec, count, _, latest_ms, producer_id, producer_epoch, sequence, _ = facts
        batch = ValidatedBatch(
            frame[start:end], codec, count - 1, latest_ms, producer_id, producer_epoch, sequence, count
        )
        result = self._append_validated(core, batch, now_ms, None)
        if result.error is not NONE:
            return result
        return result.base_offset, result.log_start_offset

    def _take_records(
        self,
        cores: list[Partition],
        batches: list[BatchFacts],
        allowance: PlainAllowance | None,
        frame: memoryview,
        now_ms: int,
    ) -> bool:
        """Whether the settings take the batches that were not read before. They are read here, within the allowance."""
        if allowance is None:
            return False
        for core, facts in zip(cores, batches, strict=True):
            if facts[11]:
                continue
            batch = frame[facts[1] : facts[2]]
            found = scan_packed(batch, facts[4], facts[5], facts[6], facts[7], self._limits, allowance)
            if found is None or not takes_records(core.log.config, found, now_ms):
                return False
        return True

    def validate(
        self, partition: TopicPartition, records: Buffer, api_version: int
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """Validate records that take long, without blocking the loop. The result is passed to `append` in place of the
        records.

        The records stay in use until then.
        """
        core = self.core(partition)
        if core is None or not core.is_leader:
            return self.pause(records)
        return self._large_batches.validate(records, core.log.config, api_version >= FIRST_VERSION_WITH_ZSTD)

    def follower_fetched(
        self,
        core: Partition,
        replica_id: int,
        offset: int,
        log_start_offset: int = -1,
        broker_epoch: int = -1,
    ) -> ErrorCode:
        """A follower fetches at `offset`, so it has everything below. Its log starts at log_start_offset."""
        now_ms = self._clock.monotonic_ms()
        refused = core.update_follower_fetch_state(replica_id, offset, log_start_offset, broker_epoch, now_ms)
        if refused is not NONE:
            return refused
        if self._replication is not None and replica_id not in core.isr:
            proposal = core.maybe_expand_isr(replica_id)
            if proposal is not None:
                self._replication.propose(core, proposal)
        if core.maybe_increment_leader_high_watermark(now_ms):
            self.advanced(core)
        self.wakeups.follower_moved(core)
        return refused

    def follower_has_all(
        self, core: Partition, replica_id: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """As `follower_fetched`, by a follower in the ISR that has been checked, at the log end."""
        log = core.log
        end = log.log_end_offset
        core.followers[replica_id].update_fetch_state(end, log_start_offset, end, broker_epoch, now_ms)
        if log.high_watermark < end and core.maybe_increment_leader_high_watermark(now_ms):
            self.advanced(core)
        self.wakeups.follower_moved(core)

    # Lookups

    def log(self, partition: TopicPartition) -> Log | None:
        core = self.core(partition)
        return core.log if core is not None and core.is_leader else None

    def leads(self, partition: TopicPartition) -> bool:
        return self.log(partition) is not None

    def start_verification(
        self,
        partition: TopicPartition,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        bumps_epochs: bool,
        now_ms: int,
    ) -> VerificationGuard | None:
        log = self.log(partition)
        assert log is not None
        return log.start_verification(producer_id, epoch, first_sequence, bumps_epochs, now_ms)

    def active_producers(self, partition: TopicPartition) -> Iterator[ProducerStateEntry]:
        core = self.core(partition)
        assert core is not None
        return core.log.active_producers()

    def list_offset(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        read_committed: bool,
        current_leader_epoch: int,
        replica_id: int,
        connection_id: int = THIS_NODE,
        timeout_ms: int = 0,
    ) -> OffsetLookup | Deferred[OffsetLookup]:
        core = self.core(partition)
        if core is None:
            return OffsetLookup(self.hosted.absent(partition))
        question = Question(
            timestamp_ms, read_committed, current_leader_epoch, replica_id, connection_id, timeout_ms
        )
        if core.is_leader and replica_id < 0 and core.cannot_be_read_yet():
            durable = self.hosted.new_log_syncs.answers.get(partition)
            if durable is not None:
                # This lasts a moment after a start. Not every client retries OFFSET_NOT_AVAILABLE.
                return self._tasks.run(
                    "looking up an offset", self._list_offset_later(durable, partition, question)
                )
        return self._list_offset(partition, question)

    async def _list_offset_later(
        self, durable: Deferred[ErrorCode], partition: TopicPartition, question: Question
    ) -> OffsetLookup:
        await self._tasks.no_longer_than(DURABLE_WAIT_MS, durable)
        found = self._list_offset(partition, question)
        return await found if isinstance(found, Deferred) else found

    def _list_offset(
        self, partition: TopicPartition, question: Question
    ) -> OffsetLookup | Deferred[OffsetLookup]:
        core = self.core(partition)
        if core is None:
            return OffsetLookup(self.hosted.absent(partition))
        found = look_up(core, question)
        if found is not None:
            return found
        if core.log.is_tiered and question.timestamp_ms >= 0 and self.remote is not None:
            return self._tasks.run(
                "searching the remote storage by time", self._list_tiered_offset(self.remote, core, question)
            )
        return self._searches.ask(core, question)

    async def _list_tiered_offset(
        self, remote: RemoteFetches, core: Partition, question: Question
    ) -> OffsetLookup:
        """What the remote storage has, or else the local files."""
        while True:
            if core.log.log_start_offset < core.log.local_log_start_offset:
                found = await remote.find_offset(core, question)
                if found is not None:
                    return found
            local_start = core.log.local_log_start_offset
            found = await self._searches.ask(core, question)
            if core.log.local_log_start_offset == local_start or found.error is not NONE:
                return found
            # What was local when the remote storage was searched may be only there by now.

    def search_room(self) -> Deferred[None] | None:
        return self._searches.room()

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        error = self.leader_error(partition, current_leader_epoch)
        if error is not NONE:
            return error, -1, -1
        core = self.by_name[partition]
        log = core.log
        if core.is_read_only and log.latest_epoch() < leader_epoch <= core.leader_epoch:
            # A mirror has no record of its leaders' epochs, which Metadata and ListOffsets tell.
            return NONE, log.latest_epoch(), log.log_end_offset
        found = log.end_offset_for_epoch(leader_epoch)
        return NONE, found.epoch, found.offset

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int, *, of_internal_topics: bool = False
    ) -> Deferred[Mapping[TopicPartition, tuple[ErrorCode, int]]]:
        refused: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        required: dict[TopicPartition, int] = {}
        for partition, offset in offsets.items():
            core = self.core(partition)
            is_internal = partition.topic in INTERNAL_TOPICS and not of_internal_topics
            if is_internal and self.hosted.is_known(partition):
                refused[partition] = (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
            elif core is None:
                refused[partition] = (self.hosted.absent(partition), -1)
            else:
                try:
                    error, start = delete_records_on_leader(core, offset)
                except OSError as failure:
                    self.hosted.storage_failed(core, failure)
                    error, start = ErrorCode.KAFKA_STORAGE_ERROR, -1
                if error is not NONE:
                    refused[partition] = error, -1
                    continue
                required[partition] = start
                if not core.alone:
                    self.wakeups.appended(core)
        return self.wakeups.deletions.wait(refused, required, timeout_ms)

    def hand_over(self, partition: TopicPartition, damaged_offset: int) -> bool:
        core, placing = self.core(partition), self.hosted.placing
        return core is not None and placing is not None and placing.give_up(core, damaged_offset)

    # Refusals

    def _not_led(self, partition: Key, core: Partition | None) -> ProduceResult:
        if core is not None:
            return ProduceResult(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=core.leader, leader_epoch=core.leader_epoch
            )
        error = self.hosted.absent(partition)
        if error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ProduceResult(error)
        elsewhere = self.hosted.image.topics[partition[0]].partitions[partition[1]]
        return ProduceResult(error, leader_id=elsewhere.leader, leader_epoch=elsewhere.leader_epoch)


class LargeBatches:
    """Produced batches that are too large for one step of the loop: decompressed in threads, checked in turns.

    The numbers of batches being opened and waiting are bounded; beyond them the client must retry. records/validate
    decides what is refused. The connection is not read meanwhile, so its batches stay in order. So a connection has at
    most one batch in line.

    Batches of usual size do not wait for huge ones, which have few places and may need minutes. Only decompression shows
    how large a body is. So each batch begins as a usual one. One that gets larger begins again in the line of huge ones.
    """

    def __init__(self, services: PartitionServices, limits: BatchLimits) -> None:
        self._clock = services.clock
        self._tasks = services.tasks
        self._workers = services.workers.batches
        self._limits = limits
        self._usual = Limit(USUAL_AT_ONCE, WAITING_MAX)
        self._huge = Limit(HUGE_AT_ONCE, WAITING_MAX)

    def pause(self, given: T) -> Deferred[T]:
        """The given value, after a turn of the loop."""
        return self._tasks.run("a Produce that pauses", _after_a_turn(given))

    def validate(
        self, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """The batch, or its refusal. The records stay in use until then."""
        return self._tasks.run("validating a large batch", self._validate(records, config, zstd_allowed))

    async def _validate(
        self, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> Buffer | ValidatedBatch | LogRefused:
        try:
            try:
                return await self._validated(self._usual, USUAL_BYTES, records, config, zstd_allowed)
            except TooMuchAtOnce as error:
                forget_locals(error.__traceback__)
            return await self._validated(
                self._huge, self._limits.unpacked_bytes, records, config, zstd_allowed
            )
        except LogRefused as refused:
            # The frames that it has left would keep the records, and lead to it.
            forget_locals(refused.__traceback__)
            return refused.with_traceback(None)
        except Overloaded as error:
            return LogRefused(ErrorCode.REQUEST_TIMED_OUT, str(error))
        except (OSError, MemoryError) as error:
            # A codec's library cannot be imported now, or there is no room for the body. As a failure it would be the answer for
            # partitions too that have their records.
            forget_locals(error.__traceback__)
            return LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"the batch cannot be opened now: {error}")

    async def _validated(
        self, places: Limit, memory_bytes: int, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> ValidatedBatch:
        now_ms = self._clock.now_ms()
        async with places:
            await pause()
            return await validate_large(
                records,
                config,
                now_ms,
                self._in_worker,
                zstd_allowed=zstd_allowed,
                limits=self._limits,
                memory_bytes=memory_bytes,
            )

    async def _in_worker(self, job: Callable[[], T]) -> T:
        given = self._workers.submit(job)
        await when_all_done([given])
        await pause()  # the jobs of many batches may be done in one turn
        return given.result()


async def _after_a_turn(given: T) -> T:
    await pause()
    return given
