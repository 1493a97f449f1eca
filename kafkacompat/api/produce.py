"""Produce (key 0, versions 3-13): records to the partitions, the answer when acks are satisfied.

Duty: topic ids to names, refusals of the whole request, the order of answers. What a batch must look like is
records/validate's, who leads is partition/'s, and whose transaction may write is transactional_produce's. Advertised from
version 0 (T4); using 0-2 closes the connection. KIP-98, KIP-951 (current leader), KIP-516 (topic ids from version 13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.context import ProduceResult
from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.handler import Handler, HoldingDeferred, NoResponse
from kafkacompat.api.transactional_produce import Verdicts, judge, producers_of
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.records.validate import Allowance, TooMuchAtOnce
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.wire.messages.produce_request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_CURRENT_LEADER = 10
ALL_REPLICAS = -1
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""
ATTRIBUTES_LOW_AT = 22
MAGIC_AT = 16
TRANSACTIONAL_BIT = 0x10
PARTITION_UNITS = 16
"""What a partition takes of the loop beside its records, in the units of Allowance."""


Place: TypeAlias = "tuple[str | None, PartitionProduceData, list[PartitionProduceResponse]]"
"""A topic's name where it is known, one of its partitions, and where the answer goes."""
Answer: TypeAlias = ProduceResponse | Deferred[ProduceResponse] | NoResponse


def is_transactional(records: Any) -> bool:
    """Whether the batch header says so; one too short to say is left to validation."""
    return (
        records is not None
        and len(records) > ATTRIBUTES_LOW_AT
        and records[MAGIC_AT] == 2
        and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT != 0
    )


def holds_transactional(topics: Iterable[TopicProduceData]) -> bool:
    for topic in topics:
        for one in topic.partition_data:
            if is_transactional(one.records):
                return True
    return False


def handle(node: Node, context: RequestContext, request: ProduceRequest) -> Answer:
    topics = request.topic_data
    several = len(topics) > 1 or (len(topics) == 1 and len(topics[0].partition_data) > 1)
    if several:
        topics = without_repeats(topics)
    if holds_transactional(topics):
        return _handle_transactional(node, context, request, topics)
    return _append(node, context, request, topics, several, None)


def _append(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    several: bool,
    verdicts: Verdicts | None,
) -> Answer:
    return _Appending(node, context, request, topics, several, verdicts).run()


def _handle_transactional(
    node: Node, context: RequestContext, request: ProduceRequest, topics: list[TopicProduceData]
) -> Answer:
    version = context.api_version
    request.topic_data = topics  # each partition once in what refuses all
    if request.transactional_id is None:
        return error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version)
    batches = {
        TopicPartition(name, one.index): one.records
        for topic in topics
        if (name := _name_of(node, topic, version)) is not None
        for one in topic.partition_data
        if is_transactional(one.records)
    }
    producers = producers_of(batches)
    if len({each[:2] for each in producers.values()}) > 1:
        return error_response(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, version)
    verdicts = judge(node, request.transactional_id, producers, version, request.timeout_ms)
    if not isinstance(verdicts, Deferred):
        return _append(node, context, request, topics, True, verdicts)
    answer: Deferred[Any] = HoldingDeferred()

    def judged(done: Deferred[Verdicts]) -> None:
        try:
            response = _append(node, context, request, topics, True, done.result())
        except Exception as error:
            answer.fail(error)
            return
        if isinstance(response, Deferred):
            response.on_done(lambda finished: answer.resolve(finished.result()))
        else:
            answer.resolve(response)

    verdicts.on_done(judged)
    return answer


def _name_of(node: Node, topic: TopicProduceData, version: int) -> str | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    image = node.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def without_repeats(topics: Iterable[TopicProduceData]) -> list[TopicProduceData]:
    """Each partition once, its last mention counting, as Kafka's map does (D19)."""
    by_topic: dict[Any, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic in topics:
        _, partitions = by_topic.setdefault((topic.name, topic.topic_id), (topic, {}))
        for one in topic.partition_data:
            partitions[one.index] = one
    for topic, partitions in by_topic.values():
        topic.partition_data = list(partitions.values())
    return [topic for topic, _ in by_topic.values()]


class _Appending:
    """A Produce on its way through its partitions, in as many portions as the loop must be given back between.

    A connection is not read before the last portion is done, so its batches stay in order. What a portion has appended is
    waited for from then on, for another leader's log may have something else at these offsets by the next one.
    """

    __slots__ = (
        "_acks",
        "_answer",
        "_appended",
        "_checked",
        "_context",
        "_ends",
        "_failed",
        "_internal_allowed",
        "_leaders",
        "_left",
        "_node",
        "_request",
        "_responses",
        "_several",
        "_verdicts",
        "_waits",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        request: ProduceRequest,
        topics: list[TopicProduceData],
        several: bool,
        verdicts: Verdicts | None,
    ) -> None:
        self._node = node
        self._context = context
        self._request = request
        self._several = several
        self._verdicts = verdicts
        self._acks = request.acks
        self._internal_allowed = context.client_id == ADMIN_CLIENT_ID
        self._failed = False
        self._leaders: set[int] = set()
        self._responses: list[TopicProduceResponse] = []
        self._ends: dict[TopicPartition, int] = {}
        """Of this portion."""
        self._appended: dict[TopicPartition, PartitionProduceResponse] = {}
        self._waits: list[Deferred[Mapping[TopicPartition, ErrorCode]]] = []
        self._left = self._partitions(topics)
        self._checked: tuple[Place, Any] | None = None
        """Where the next portion begins, with the records or what has become of them."""
        self._answer: Deferred[Any] | None = None
        """Made by the first pause."""

    def run(self) -> Answer | Deferred[ProduceResponse] | NoResponse:
        paused = self._portion()
        if paused is None:
            return self._response()
        self._answer = HoldingDeferred()
        paused.on_done(self._go_on)
        return self._answer

    def _partitions(self, topics: list[TopicProduceData]) -> Iterator[Place]:
        version = self._context.api_version
        for topic in topics:
            name = _name_of(self._node, topic, version)
            answers: list[PartitionProduceResponse] = []
            self._responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for one in topic.partition_data:
                yield name, one, answers

    def _portion(self) -> Deferred[Any] | None:
        """Until the end, None, or until the loop must be given back: the next one is due when that is done."""
        if not self._several:
            paused = self._walk()
            self._wait_for_ends()
            return paused
        self._node.partitions.hold_wakeups()
        try:
            paused = self._walk()
            self._wait_for_ends()
            return paused
        finally:
            self._node.partitions.release_wakeups()

    def _walk(self) -> Deferred[Any] | None:
        allowance = Allowance()
        while True:
            if self._checked is not None:
                place, records = self._checked
                self._checked = None
            else:
                following = next(self._left, None)
                if following is None:
                    return None
                place, records = following, following[1].records
            name, one, answers = place
            if allowance.units <= 0:
                self._checked = place, records
                return self._node.partitions.pause(records)
            allowance.units -= PARTITION_UNITS
            if name is None:
                self._add(answers, one.index, ProduceResult(ErrorCode.UNKNOWN_TOPIC_ID), None)
                continue
            partition = TopicPartition(name, one.index)
            try:
                result = self._append_one(partition, one.records, records, allowance)
            except TooMuchAtOnce:
                self._checked = place, records
                return self._node.partitions.validate(partition, records, self._context.api_version)
            self._add(answers, one.index, result, partition)

    def _go_on(self, validated: Deferred[Any]) -> None:
        answer = self._answer
        assert answer is not None
        try:
            if self._checked is not None:
                self._checked = self._checked[0], validated.result()
            paused = self._portion()
            response = self._response() if paused is None else None
        except Exception as error:
            answer.fail(error)
            return
        if paused is not None:
            paused.on_done(self._go_on)
        elif isinstance(response, Deferred):
            response.on_done(lambda finished: answer.resolve(finished.result()))
        else:
            answer.resolve(response)

    def _append_one(
        self, partition: TopicPartition, records: Any, checked: Any, allowance: Allowance
    ) -> ProduceResult:
        """`checked`: the records, or what they were found to be."""
        node, acks, verdicts = self._node, self._acks, self._verdicts
        if acks not in (0, 1, ALL_REPLICAS):
            topic = node.image.topics.get(partition.topic)
            if topic is None or partition.partition not in topic.partitions:
                return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
        if records is None:
            return ProduceResult(ErrorCode.INVALID_RECORD, error_message="The partition has no records.")
        terms = None
        if verdicts is not None:
            refused = verdicts.refused.get(partition)
            if refused is not None:
                return ProduceResult(refused)
            terms = verdicts.terms.get(partition)
            if (
                terms is None
                and not verdicts.trusts
                and is_transactional(records)
                and producers_of({partition: records})
                and node.partitions.log(partition) is not None
            ):
                # It came to be led or known here while the coordinator was asked about the others, which does not know of it.
                return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return node.partitions.append(
            partition,
            checked,
            acks,
            self._context.api_version,
            self._internal_allowed,
            terms,
            allowance=allowance,
        )

    def _add(
        self,
        answers: list[PartitionProduceResponse],
        index: int,
        result: ProduceResult,
        partition: TopicPartition | None,
    ) -> None:
        answer = PartitionProduceResponse(
            index=index,
            error_code=result.error,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        answers.append(answer)
        if result.error is ErrorCode.NONE and partition is not None:
            self._ends[partition] = result.last_offset + 1
            self._appended[partition] = answer
            return
        self._failed = True
        _explain(answer, result)
        if result.leader_id >= 0 and self._context.api_version >= FIRST_VERSION_WITH_CURRENT_LEADER:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=result.leader_id, leader_epoch=result.leader_epoch
            )
            self._leaders.add(result.leader_id)

    def _wait_for_ends(self) -> None:
        """For replicas (acks=all) and flush.messages, of what this portion has appended."""
        ends, self._ends = self._ends, {}
        if not ends or self._acks == 0:
            return
        partitions = self._node.partitions
        if self._acks == ALL_REPLICAS:
            replicated = partitions.when_replicated(ends, self._request.timeout_ms)
            if replicated is not None:
                self._waits.append(replicated)
        flushed = partitions.when_flushed(ends)
        if flushed is not None:
            self._waits.append(flushed)

    def _response(self) -> Answer:
        """When replicas and syncs let it go."""
        if self._acks == 0:
            return NoResponse.CLOSE if self._failed else NoResponse.SILENT
        response = ProduceResponse(responses=self._responses)
        if self._leaders:
            response.node_endpoints = endpoints_of(
                self._node.image, self._leaders, self._context.listener_name, NodeEndpoint
            )
        waits = self._waits
        if not waits:
            return response
        left = len(waits)
        answer: Deferred[ProduceResponse] = Deferred()

        def settle(done: Deferred[Mapping[TopicPartition, ErrorCode]]) -> None:
            nonlocal left
            for partition, error in done.result().items():
                if error is not ErrorCode.NONE:
                    self._appended[partition].error_code = error
            left -= 1
            if left == 0:
                answer.resolve(response)

        for wait in waits:
            wait.on_done(settle)
        return answer


def _explain(answer: PartitionProduceResponse, result: ProduceResult) -> None:
    answer.error_message = result.error_message
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]


def error_response(request: ProduceRequest, code: ErrorCode, version: int) -> ProduceResponse | NoResponse:
    if request.acks == 0:
        return NoResponse.CLOSE
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


HANDLER = Handler(0, 3, 13, handle, error_response, blocks=False, advertised_min_version=0)
