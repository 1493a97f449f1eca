"""Fetches: sessions, byte limits, reads, and the long poll that parks until bytes or time are there.

The shell that joins `sessions` and `waiters` with the partitions' logs. Knows no version but what the answer's content
depends on (current leader, reading from followers). Records leave as file slices; no record byte is looked at here.
A consumer's fetch waits for the high watermark, a follower's for the log's end: acks=all produces wait for the latter.
Follows KIP-74 (limits), KIP-227 (sessions), KIP-320 and KIP-595 (epochs), KIP-392 (nearest replica), KIP-951 (current leader).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import ZERO_UUID, TopicPartition, Uuid
from kafkacompat.partition.read_replicas import nearest_replica
from kafkacompat.partition.sessions import FetchContext, FetchSessionCache
from kafkacompat.partition.waiters import Waiter, WaitList
from kafkacompat.ports import EMPTY_RECORDS, LogRefused
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import FetchParameters, FetchRequestPartition
    from kafkacompat.controller.image import PartitionImage
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.manager import PartitionManager
    from kafkacompat.partition.throttles import ReplicationThrottle
    from kafkacompat.ports import Clock, Timers

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_CURRENT_LEADER = 16
FIRST_VERSION_WITH_RACK = 11
"""From here on consumers may read from followers."""
ANSWER_NOW = -1
"""In place of a byte count: this partition ends the wait."""
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ParkedFetch(Waiter):
    """A fetch that waits for min_bytes. `sizes` is what each partition could give, `total` their sum, in bytes."""

    __slots__ = ("answer", "asked", "context", "engine", "parameters", "parked_in", "sizes", "total")

    def __init__(self, engine: FetchEngine, context: FetchContext, parameters: FetchParameters) -> None:
        super().__init__()
        self.engine = engine
        self.context = context
        self.parameters = parameters
        self.parked_in = engine.followers if parameters.replica_id >= 0 else engine.consumers
        self.answer: Deferred[FetchResponse] = Deferred()
        self.asked: dict[tuple[str, int], Any] = {}
        self.sizes: dict[tuple[str, int], int] = {}
        self.total = 0

    def expire(self) -> None:
        context = self.context
        try:
            response = self.engine.respond(
                context, self.parameters, self.engine.read_all(context, self.parameters, arrived=False)[0]
            )
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)


class FetchEngine:
    """FetchService of api/context."""

    def __init__(
        self,
        manager: PartitionManager,
        clock: Clock,
        timers: Timers,
        sessions: FetchSessionCache,
        fetch_max_bytes: Callable[[], int],
        *,
        selects_by_rack: bool = False,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """`selects_by_rack`: see read_replicas. `throttle` holds back followers that are out of sync."""
        self.sessions = sessions
        self._manager = manager
        self._clock = clock
        self._fetch_max_bytes = fetch_max_bytes
        self._selects_by_rack = selects_by_rack
        self._throttle = throttle
        self.consumers: WaitList[ParkedFetch] = WaitList(clock, timers)
        self.followers: WaitList[ParkedFetch] = WaitList(clock, timers)
        manager.watch(partial(self._moved, self.consumers))
        manager.watch_appends(partial(self._moved, self.followers))

    def parked_count(self) -> int:
        return len(self.consumers) + len(self.followers)

    def fetch(
        self,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> FetchResponse | Deferred[FetchResponse]:
        context = self.sessions.open(
            parameters.session_id,
            parameters.session_epoch,
            partitions,
            forgotten,
            uses_topic_ids=parameters.uses_topic_ids,
            privileged=parameters.replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        parameters.max_bytes = min(parameters.max_bytes, self._fetch_max_bytes())
        parameters.min_bytes = min(parameters.min_bytes, parameters.max_bytes)
        answers, ready = self.read_all(context, parameters)
        if ready or parameters.max_wait_ms <= 0:
            return self.respond(context, parameters, answers)
        waiter = ParkedFetch(self, context, parameters)
        parked_in = waiter.parked_in
        for asked in context.partitions:
            core = self._find(asked, parameters.uses_topic_ids)
            if core is None:
                continue
            size = self._available(core, asked, parameters)
            if size == ANSWER_NOW:
                return self.respond(context, parameters, answers)
            waiter.asked[core.topic_partition] = asked
            waiter.sizes[core.topic_partition] = size
            waiter.total += size
        if not waiter.asked or waiter.total >= parameters.min_bytes or parked_in.is_full():
            return self.respond(context, parameters, answers)
        waiter.answer.when_abandoned = partial(parked_in.remove, waiter)
        parked_in.park(waiter, waiter.asked, parameters.max_wait_ms)
        return waiter.answer

    def _moved(self, parked: WaitList[ParkedFetch], core: PartitionCore) -> None:
        """A partition's high watermark, end or role moved: answer whoever now has enough."""
        key = core.topic_partition
        for waiter in parked.on(key):
            size = ANSWER_NOW
            if self._manager.by_name.get(key) is core:
                size = self._available(core, waiter.asked[key], waiter.parameters)
            if size != ANSWER_NOW:
                waiter.total += size - waiter.sizes[key]
                waiter.sizes[key] = size
                if waiter.total < waiter.parameters.min_bytes:
                    continue
            parked.remove(waiter)
            waiter.expire()

    def _check(self, core: PartitionCore, asked: Any, parameters: FetchParameters) -> ErrorCode:
        """Whether this reader may read here: followers from the leader only, consumers of today from any replica."""
        if parameters.replica_id >= 0:
            return core.check_replica(parameters.replica_id, asked.current_leader_epoch)
        if core.is_leader or parameters.version < FIRST_VERSION_WITH_RACK:
            return core.check_leader(asked.current_leader_epoch)
        return core.fence(asked.current_leader_epoch)

    def _available(self, core: PartitionCore, asked: Any, parameters: FetchParameters) -> int:
        """Bytes a parked fetch could have from this partition, or ANSWER_NOW."""
        if self._check(core, asked, parameters) is not ErrorCode.NONE:
            return ANSWER_NOW
        log = core.log
        if parameters.replica_id >= 0:
            if self._is_held_back(core, parameters.replica_id):
                return 0
            if getattr(asked, "told_log_start_offset", log.log_start_offset) != log.log_start_offset:
                return ANSWER_NOW  # a deletion of records waits until all followers know
        offset = asked.fetch_offset
        end = readable_end(core, parameters)
        if offset == end:
            return 0
        if offset > end or offset < log.log_start_offset:
            return ANSWER_NOW  # E7, or deleted meanwhile
        if log.segment_base_offset(offset) != log.segment_base_offset(end):
            return ANSWER_NOW
        limit: int = asked.partition_max_bytes
        return min(log.readable_bytes(offset, end), limit)

    def _find(self, asked: Any, uses_topic_ids: bool) -> PartitionCore | None:
        manager = self._manager
        if uses_topic_ids:
            return manager.core_by_id(asked.topic_id, asked.partition)
        return manager.core((asked.topic, asked.partition))

    def read_all(
        self, context: FetchContext, parameters: FetchParameters, *, arrived: bool = True
    ) -> tuple[list[tuple[Any, PartitionData]], bool]:
        """(asked, answer) of each partition in order, and whether they answer the fetch without a wait.

        `arrived`: the request has just come, so that a follower tells by it how far it is.
        """
        budget = parameters.max_bytes
        first = True
        known = ended = False
        total = 0
        answers = []
        for asked in context.partitions:
            core = self._find(asked, parameters.uses_topic_ids)
            if core is None:
                error = self._absent(asked, parameters.uses_topic_ids)
                answer = self._refuse(asked, error, parameters)
                if error in UNKNOWN:
                    answers.append((asked, answer))
                    continue  # as in Kafka, what the metadata lacks does not end the wait for the rest
            else:
                answer = self._read(
                    core, asked, parameters, min(budget, asked.partition_max_bytes), first, arrived
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
            answers.append((asked, answer))
        return answers, ended or not known or total >= parameters.min_bytes

    def _read(
        self,
        core: PartitionCore,
        asked: Any,
        parameters: FetchParameters,
        max_bytes: int,
        minimum_one_batch: bool,
        arrived: bool,
    ) -> PartitionData:
        replica_id = parameters.replica_id
        error = self._check(core, asked, parameters)
        log = core.log
        if error is not ErrorCode.NONE:
            return self._refuse(asked, error, parameters)
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
                return self._refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
            if found.epoch < asked.last_fetched_epoch or found.offset < offset:
                answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.offset)
                return answer
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return self._refuse(asked, ErrorCode.OFFSET_OUT_OF_RANGE, parameters)
        if replica_id >= 0:
            if arrived:
                error = self._manager.follower_fetched(
                    core, replica_id, offset, asked.log_start_offset, parameters.replica_epoch
                )
                if error is not ErrorCode.NONE:
                    return self._refuse(asked, error, parameters)
                answer.high_watermark = log.high_watermark
            if self._is_held_back(core, replica_id):
                return answer
        elif self._selects_by_rack and core.is_leader and parameters.rack_id:
            nearest = nearest_replica(
                core, parameters.rack_id, offset, parameters.listener_name, self._clock.monotonic_ms()
            )
            if nearest is not None:
                answer.preferred_read_replica = nearest
                return answer
        end = readable_end(core, parameters)
        if offset >= end or (max_bytes <= 0 and not minimum_one_batch):
            return answer
        try:
            read = log.read(offset, max_bytes, end, minimum_one_batch)
        except LogRefused as refused:
            return self._refuse(asked, refused.code, parameters)
        except BatchCorrupt as damage:
            logger.error("%s is damaged on disk before offset %d: %s", core.topic_partition, end, damage)
            return self._refuse(asked, ErrorCode.CORRUPT_MESSAGE, parameters)
        except OSError as error_of_disk:
            logger.error("read of %s failed: %s", core.topic_partition, error_of_disk)
            return self._refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, parameters)
        if not read.first_batch_truncated or minimum_one_batch:
            answer.records = read.records
            if replica_id >= 0 and self._throttle is not None:
                self._throttle.passed(core, len(read.records))
        if parameters.read_committed:
            aborted = log.aborted_transactions(offset, end)
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in sorted(aborted, key=lambda one: one.first_offset)
            ]
        return answer

    def _is_held_back(self, core: PartitionCore, replica_id: int) -> bool:
        return self._throttle is not None and self._throttle.holds_back(core, replica_id)

    def _absent(self, asked: Any, uses_topic_ids: bool) -> ErrorCode:
        image = self._manager.image
        if uses_topic_ids:
            topic = image.topics_by_id.get(asked.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            return self._manager.leader_error(TopicPartition(topic.name, asked.partition))
        return self._manager.leader_error(TopicPartition(asked.topic, asked.partition))

    def _refuse(self, asked: Any, error: ErrorCode, parameters: FetchParameters) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[] if error in UNKNOWN else None,
            records=EMPTY_RECORDS,
        )
        if parameters.version >= FIRST_VERSION_WITH_CURRENT_LEADER and error in STALE_LEADER:
            leader = self._leader_of(asked, parameters.uses_topic_ids)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return answer

    def _leader_of(self, asked: Any, uses_topic_ids: bool) -> PartitionImage | None:
        image = self._manager.image
        topic = image.topics_by_id.get(asked.topic_id) if uses_topic_ids else image.topics.get(asked.topic)
        return None if topic is None else topic.partitions.get(asked.partition)

    def respond(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> FetchResponse:
        """The message of these answers, partitions of one topic that follow each other put together."""
        session_id, selected = context.select(answers, self._clock.monotonic_ms())
        topics: list[FetchableTopicResponse] = []
        leaders: set[int] = set()
        last_name: str | None = None
        last_id: Uuid = ZERO_UUID
        for asked, answer in selected:
            if not topics or asked.topic != last_name or asked.topic_id != last_id:
                last_name, last_id = asked.topic, asked.topic_id
                topics.append(FetchableTopicResponse(topic=last_name or "", topic_id=last_id))
            topics[-1].partitions.append(answer)
            if answer.current_leader is not None:
                leaders.add(answer.current_leader.leader_id)
        response = FetchResponse(session_id=session_id, responses=topics)
        if leaders:
            response.node_endpoints = self._endpoints(leaders, parameters.listener_name)
        return response

    def _endpoints(self, leaders: set[int], listener_name: str) -> list[NodeEndpoint]:
        brokers = self._manager.image.brokers
        endpoints = []
        for leader in sorted(leaders):
            broker = brokers.get(leader)
            endpoint = None if broker is None else broker.endpoints.get(listener_name)
            if broker is not None and endpoint is not None:
                endpoints.append(
                    NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                )
        return endpoints


def readable_end(core: PartitionCore, parameters: FetchParameters) -> int:
    """The offset a reader may not reach: log end for followers, last stable offset or high watermark for consumers."""
    log = core.log
    if parameters.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if parameters.read_committed else log.high_watermark
