"""Produce (key 0, versions 3-13): records to the partitions, the answer when acks are satisfied.

Duty: topic ids to names, refusals of the whole request, the order of answers. What a batch must look like is
records/validate's, who leads is partition/'s, and whose transaction may write is transactional_produce's. Advertised from
version 0 (T4); using 0-2 closes the connection. KIP-98, KIP-951 (current leader), KIP-516 (topic ids from version 13).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import ProduceResult
from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.handler import Handler, HoldingDeferred, NoResponse
from kafkacompat.api.transactional_produce import Verdicts, judge, producers_of
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
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


def handle(
    node: Node, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred[ProduceResponse] | NoResponse:
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
) -> ProduceResponse | Deferred[ProduceResponse] | NoResponse:
    if not several:
        return _append_all(node, context, request, topics, verdicts)
    node.partitions.hold_wakeups()
    try:
        return _append_all(node, context, request, topics, verdicts)
    finally:
        node.partitions.release_wakeups()


def _handle_transactional(
    node: Node, context: RequestContext, request: ProduceRequest, topics: list[TopicProduceData]
) -> ProduceResponse | Deferred[ProduceResponse] | NoResponse:
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


def _append_all(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    topics: Iterable[TopicProduceData],
    verdicts: Verdicts | None,
) -> ProduceResponse | Deferred[ProduceResponse] | NoResponse:
    version = context.api_version
    acks = request.acks
    internal_allowed = context.client_id == ADMIN_CLIENT_ID
    failed = False
    leaders: set[int] = set()
    ends: dict[TopicPartition, int] = {}
    appended: dict[TopicPartition, PartitionProduceResponse] = {}
    responses: list[TopicProduceResponse] = []
    for topic in topics:
        name = _name_of(node, topic, version)
        answers: list[PartitionProduceResponse] = []
        for one in topic.partition_data:
            if name is None:
                result = ProduceResult(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                partition = TopicPartition(name, one.index)
                result = _append_one(node, partition, one.records, acks, version, internal_allowed, verdicts)
            answer = PartitionProduceResponse(
                index=one.index,
                error_code=result.error,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            if result.error is ErrorCode.NONE:
                ends[partition] = result.last_offset + 1
                appended[partition] = answer
            else:
                failed = True
                _explain(answer, result)
                if result.leader_id >= 0 and version >= FIRST_VERSION_WITH_CURRENT_LEADER:
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=result.leader_id, leader_epoch=result.leader_epoch
                    )
                    leaders.add(result.leader_id)
            answers.append(answer)
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    if acks == 0:
        return NoResponse.CLOSE if failed else NoResponse.SILENT
    response = ProduceResponse(responses=responses)
    if leaders:
        response.node_endpoints = endpoints_of(node.image, leaders, context.listener_name, NodeEndpoint)
    return _when_acknowledged(node, request, response, ends, appended)


def _append_one(
    node: Node,
    partition: TopicPartition,
    records: Any,
    acks: int,
    version: int,
    internal_allowed: bool,
    verdicts: Verdicts | None,
) -> ProduceResult:
    if acks not in (0, 1, ALL_REPLICAS):
        topic = node.image.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
    if records is None:
        return ProduceResult(ErrorCode.INVALID_RECORD, error_message="The partition has no records.")
    if verdicts is None:
        return node.partitions.append(partition, records, acks, version, internal_allowed)
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
    return node.partitions.append(partition, records, acks, version, internal_allowed, terms)


def _explain(answer: PartitionProduceResponse, result: ProduceResult) -> None:
    answer.error_message = result.error_message
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]


def _when_acknowledged(
    node: Node,
    request: ProduceRequest,
    response: ProduceResponse,
    ends: Mapping[TopicPartition, int],
    appended: Mapping[TopicPartition, PartitionProduceResponse],
) -> ProduceResponse | Deferred[ProduceResponse]:
    """The response when replicas (acks=all) and flush.messages let it go."""
    replicated = None
    if request.acks == ALL_REPLICAS and ends:
        replicated = node.partitions.when_replicated(ends, request.timeout_ms)
    flushed = node.partitions.when_flushed(ends)
    if replicated is None and flushed is None:
        return response
    steps = [step for step in (replicated, flushed) if step is not None]
    left = len(steps)
    answer: Deferred[ProduceResponse] = Deferred()

    def settle(done: Deferred[Mapping[TopicPartition, ErrorCode]]) -> None:
        nonlocal left
        for partition, error in done.result().items():
            if error is not ErrorCode.NONE:
                appended[partition].error_code = error
        left -= 1
        if left == 0:
            answer.resolve(response)

    for step in steps:
        step.on_done(settle)
    return answer


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
