"""What a fetch reads of each partition: whether the reader may read, up to which offset, and the bytes within the
request's limits.

Records are returned as file slices, and their bytes are not examined. A follower reads to the log end, a consumer to
the high watermark or the last stable offset. Follows KIP-74 (limits), KIP-320 and KIP-595 (epochs), KIP-392 (nearest
replica).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.partition.fetch_answers import HIDDEN, FetchAnswers
from kafkacompat.partition.read_replicas import nearest_replica
from kafkacompat.partition.sessions import CachedPartition, FetchContext
from kafkacompat.ports import EMPTY_RECORDS, LogRefused
from kafkacompat.ports import AbortedTransaction as AbortedOfLog
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    PartitionData,
)

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
    from kafkacompat.ports import Clock

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_RACK = 11
"""From this version on, consumers may read from followers."""
ANSWER_NOW = -1
"""Used in place of a byte count: this partition ends the wait."""
READ_A_STEP = 200
"""Partitions that one step of a fetch answers, at up to 30 us each."""
ABORTED_MAX = 1_000
"""Aborted transactions in one answer, at about 5 us each, beyond which no more records are read. A transaction may be in
all partitions of a fetch, and a log may have a hundred thousand. The client gets the other records with its next fetch."""
LOOKED_AT_A_STEP = 2_000
"""Partitions that one step checks for a follower that is up to date, at about 1 us each."""


class Counted(NamedTuple):
    """The bytes that a fetch could get from a partition, counted up to an offset."""

    size: int
    end: int


NOTHING_COUNTED = Counted(0, -1)
ENDS_WAIT = Counted(ANSWER_NOW, -1)


class Reading:
    """The progress of a fetch through its partitions, and the answers so far."""

    __slots__ = (
        "aborted_left",
        "answers",
        "budget",
        "ended",
        "first",
        "is_known",
        "partitions",
        "position",
        "total",
    )

    def __init__(self, partitions: Sequence[Any], max_bytes: int) -> None:
        self.partitions = partitions
        self.position = 0
        self.answers: list[tuple[Any, PartitionData]] = []
        self.budget = max_bytes
        self.aborted_left = ABORTED_MAX
        self.first = True
        self.is_known = self.ended = False
        self.total = 0

    @property
    def is_over(self) -> bool:
        return self.position >= len(self.partitions)

    def stretch(self) -> Iterator[Any]:
        """The partitions of one step. The more of them need an answer, the fewer it has."""
        answers_max = len(self.answers) + READ_A_STEP
        for asked in islice(self.partitions, self.position, self.position + LOOKED_AT_A_STEP):
            self.position += 1
            yield asked
            if len(self.answers) >= answers_max:
                return


class FetchReads:
    def __init__(
        self,
        manager: ReplicaManager,
        clock: Clock,
        *,
        selects_by_rack: bool,
        throttle: ReplicationQuotaManager | None,
    ) -> None:
        """`selects_by_rack`: see read_replicas. `throttle` limits followers that are not in sync."""
        self._manager = manager
        self._clock = clock
        self._selects_by_rack = selects_by_rack
        self._throttle = throttle
        self.answers = FetchAnswers(manager, clock)

    def read_all(
        self,
        context: FetchContext,
        parameters: FetchParameters,
        partitions: Iterable[Any],
        *,
        arrived: bool,
        reading: Reading | None = None,
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """(asked, answer) of each partition in order, and whether the fetch can be answered without a wait. With
        `reading`, continue where that one stopped.

        `arrived`: the request is new, so a follower's offsets report its progress. Partitions of which a follower has
        everything are left out.
        """
        manager, replica_id = self._manager, parameters.replica_id
        may_be_quiet = (
            arrived
            and replica_id >= 0
            and context.session is not None
            and not manager.standing.is_outlived(replica_id, parameters.replica_epoch)
        )
        now_ms = self._clock.monotonic_ms() if may_be_quiet else 0
        budget = parameters.max_bytes
        aborted_left = ABORTED_MAX
        first = True
        known = ended = False
        total = 0
        answers: list[tuple[Any, PartitionData]] = []
        if reading is not None:
            budget, first, total = reading.budget, reading.first, reading.total
            known, ended, answers = reading.is_known, reading.ended, reading.answers
            aborted_left = reading.aborted_left
        for asked in partitions:
            core = self.find(asked, parameters)
            if (
                may_be_quiet
                and core is not None
                and core.update_idle_follower_fetch_state(replica_id, asked, parameters.replica_epoch, now_ms)
            ):
                known = True
                continue
            if core is None:
                error = self.answers.absent(asked, parameters)
                answer = self.answers.refuse(asked, error, parameters)
                if error in HIDDEN:
                    answers.append((asked, answer))
                    continue  # as in Kafka, a missing or hidden partition does not end the wait for the others
            else:
                answer = self._read(
                    core,
                    asked,
                    parameters,
                    min(budget, asked.partition_max_bytes),
                    first,
                    arrived,
                    aborted_left,
                )
            known = True
            if (
                answer.error_code != 0
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
            ):
                ended = True
            size = len(answer.records)
            if size:
                first = False
                total += size
                budget = max(0, budget - size)
                if answer.aborted_transactions:
                    aborted_left -= len(answer.aborted_transactions)
                    if aborted_left <= 0:
                        budget = 0
            answers.append((asked, answer))
        if reading is not None:
            reading.budget, reading.first, reading.total = budget, first, total
            reading.is_known, reading.ended = known, ended
            reading.aborted_left = aborted_left
        return answers, ended or not known or total >= parameters.min_bytes

    def _read(
        self,
        core: Partition,
        asked: Any,
        parameters: FetchParameters,
        max_bytes: int,
        minimum_one_batch: bool,
        arrived: bool,
        aborted_max: int,
    ) -> PartitionData:
        replica_id = parameters.replica_id
        if arrived or replica_id >= 0:  # a consumer's fetch that waits counts once
            core.traffic.fetches += 1
        error = self._check(core, asked, parameters)
        log = core.log
        if error is not NONE:
            return self.answers.refuse(asked, error, parameters)
        offset = asked.fetch_offset
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if parameters.read_committed else None,
            records=EMPTY_RECORDS,
        )
        if asked.last_fetched_epoch >= 0:
            found = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if found.epoch < 0:
                return self.answers.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
            if found.epoch < asked.last_fetched_epoch or found.offset < offset:
                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)
                answer.aborted_transactions = None
                return answer
        if replica_id >= 0 and isinstance(asked, CachedPartition):
            asked.settled_epoch = core.leader_epoch
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return self.answers.refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
        if replica_id >= 0:
            if arrived:
                error = self._manager.follower_fetched(
                    core, replica_id, offset, asked.log_start_offset, parameters.replica_epoch
                )
                if error is not NONE:
                    return self.answers.refuse(asked, error, parameters)
                answer.high_watermark = log.high_watermark
            if self._is_held_back(core, replica_id):
                return answer
        elif self._selects_by_rack and core.is_leader and parameters.rack_id:
            nearest = nearest_replica(
                core, parameters.rack_id, offset, parameters.listener_name, self._clock.monotonic_ms()
            )
            if nearest is not None:
                answer.preferred_read_replica = nearest
                answer.aborted_transactions = None
                return answer
        end = readable_end(core, parameters)
        if offset >= end or (max_bytes <= 0 and not minimum_one_batch):
            return answer
        try:
            read = log.read(offset, max_bytes, end, minimum_one_batch)
            aborted: list[AbortedOfLog] = []
            if parameters.read_committed:
                aborted, end = log.aborted_transactions(offset, read.end_offset, aborted_max)
                if end < read.end_offset:
                    read = log.read(offset, max_bytes, end, minimum_one_batch)
        except LogRefused as refused:
            return self.answers.refuse(asked, refused.code, parameters)
        except BatchCorrupt as damage:
            core.traffic.failed_fetches += 1
            logger.error("%s is damaged on disk before offset %d: %s", core.topic_partition, end, damage)
            return self.answers.refuse(asked, ErrorCode.CORRUPT_MESSAGE, parameters)
        except OSError as error_of_disk:
            logger.error("read of %s failed: %s", core.topic_partition, error_of_disk)
            return self.answers.refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, parameters)
        if not read.first_batch_truncated or minimum_one_batch:
            answer.records = read.records
            if replica_id >= 0 and self._throttle is not None:
                self._throttle.record(core, len(read.records))
        if parameters.read_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in aborted
            ]
        return answer

    def _check(self, core: Partition, asked: Any, parameters: FetchParameters) -> ErrorCode:
        """Check that this reader may read here: followers from the leader only, newer consumers from any replica."""
        if parameters.replica_id >= 0:
            return core.check_replica(parameters.replica_id, asked.current_leader_epoch)
        if not core.is_leader and parameters.version >= FIRST_VERSION_WITH_RACK:
            return core.check_current_leader_epoch(asked.current_leader_epoch)
        error = core.check_leader(asked.current_leader_epoch)
        if error is NONE and core.cannot_be_read_yet():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def available(
        self, core: Partition, asked: Any, parameters: FetchParameters, known: Counted = NOTHING_COUNTED
    ) -> Counted:
        """The bytes that a parked fetch could get from this partition, or ANSWER_NOW. `known` is what an earlier look has
        found: only what has come since then is looked for. Finding a place far from the log's end takes ten times as long
        as all else here."""
        if self._check(core, asked, parameters) is not NONE:
            return ENDS_WAIT
        log = core.log
        offset = asked.fetch_offset
        if parameters.replica_id >= 0:
            if self._is_held_back(core, parameters.replica_id):
                return Counted(0, offset)
            if getattr(asked, "told_log_start_offset", log.log_start_offset) != log.log_start_offset:
                return ENDS_WAIT  # DeleteRecords waits until all followers know the new start
        end = readable_end(core, parameters)
        if offset == end:
            return Counted(0, offset)
        if offset > end or offset < log.log_start_offset:
            return ENDS_WAIT  # not committed yet, or deleted meanwhile
        if log.segment_base_offset(offset) != log.segment_base_offset(end):
            return ENDS_WAIT
        limit: int = asked.partition_max_bytes
        if not offset <= known.end <= end:
            known = Counted(0, offset)
        try:
            more = log.readable_bytes(known.end, end)
        except (OSError, BatchCorrupt, LogRefused):
            return ENDS_WAIT  # the read gets the same error and reports it
        return Counted(min(known.size + more, limit), end)

    def find(self, asked: Any, parameters: FetchParameters) -> Partition | None:
        """The partition. None if it is not here, or the reader may not read it."""
        manager = self._manager
        if parameters.may_read is not None and not parameters.may_read(asked.topic):
            return None
        if parameters.uses_topic_ids:
            return manager.core_by_id(asked.topic_id, asked.partition)
        return manager.core((asked.topic, asked.partition))

    def _is_held_back(self, core: Partition, replica_id: int) -> bool:
        return self._throttle is not None and self._throttle.should_throttle(core, replica_id)


def readable_end(core: Partition, parameters: FetchParameters) -> int:
    """The offset at which reads end: log end for followers, last stable offset or high watermark for consumers."""
    log = core.log
    if parameters.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if parameters.read_committed else log.high_watermark
