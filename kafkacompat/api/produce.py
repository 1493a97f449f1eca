"""Produce (key 0, versions 3-13): records to the partitions, the answer when acks are satisfied.

Duty: topic ids to names, refusals of the whole request, the order of answers. What a batch must look like is
records/validate's, who leads is partition/'s, and whose transaction may write is transactional_produce's. Advertised from
version 0; using 0-2 closes the connection. KIP-98, KIP-951 (current leader), KIP-516 (topic ids from version 13).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.handler import Handler, HoldingDeferred, NoResponse
from kafkacompat.api.produce_answers import (
    ACKS,
    ADMIN_CLIENT_ID,
    Answer,
    answer_of,
    name_of,
    waits_for,
    when_all,
)
from kafkacompat.api.produce_portions import Appending
from kafkacompat.api.transactional_produce import Verdicts, is_transactional, judge, producers_of
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.records.validate import Allowance, TooMuchAtOnce
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_response import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.wire.messages.produce_request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )


def holds_transactional(topics: Iterable[TopicProduceData]) -> bool:
    for topic in topics:
        for one in topic.partition_data:
            if is_transactional(one.records):
                return True
    return False


def handle(node: Node, context: RequestContext, request: ProduceRequest) -> Answer:
    topics = request.topic_data
    several = len(topics) > 1 or (len(topics) == 1 and len(topics[0].partition_data) != 1)
    if several:
        # Kafka answers partitions, and says nothing of topics without any, of which a request may name hundreds of thousands.
        topics = without_repeats([topic for topic in topics if topic.partition_data])
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
    opens_first = False
    if not several and verdicts is None and topics and request.acks in ACKS:
        try:
            answer = _append_only(node, context, request, topics[0])
        except TooMuchAtOnce:
            opens_first = True
        else:
            if answer is not None:
                return answer
    return Appending(node, context, request, topics, several, verdicts, opens_first).run()


def _append_only(
    node: Node, context: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> Answer | None:
    """What most requests are: one batch, taken at once. None when it is anything else, of which nothing is done yet.

    Raises TooMuchAtOnce, with nothing done either.
    """
    version = context.api_version
    acks = request.acks
    name = name_of(node, topic, version)
    if name is None or len(topic.partition_data) != 1:
        return None
    one = topic.partition_data[0]
    if one.records is None:
        return None
    partition = TopicPartition(name, one.index)
    result = node.partitions.append(
        partition,
        one.records,
        acks,
        version,
        context.client_id == ADMIN_CLIENT_ID,
        allowance=Allowance(),
    )
    answer, leader = answer_of(one.index, result, version)
    if acks == 0:
        return NoResponse.SILENT if result.error is NONE else NoResponse.CLOSE
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        ]
    )
    if result.error is not NONE:
        if leader >= 0:
            response.node_endpoints = endpoints_of(node.image, {leader}, context.listener_name, NodeEndpoint)
        return response
    waits = waits_for(node, request, {partition: result.last_offset + 1})
    return when_all(waits, response, {partition: answer}) if waits else response


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
        if (name := name_of(node, topic, version)) is not None
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
            response.pass_to(answer)
        else:
            answer.resolve(response)

    verdicts.on_done(judged)
    return answer


def without_repeats(topics: Iterable[TopicProduceData]) -> list[TopicProduceData]:
    """Each partition once, its last mention counting, as Kafka's map does."""
    by_topic: dict[Any, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic in topics:
        _, partitions = by_topic.setdefault((topic.name, topic.topic_id), (topic, {}))
        for one in topic.partition_data:
            partitions[one.index] = one
    for topic, partitions in by_topic.values():
        topic.partition_data = list(partitions.values())
    return [topic for topic, _ in by_topic.values()]


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
