"""Produce (key 0, versions 3-13): append records to partitions, and answer when acks is satisfied.

This module maps topic ids to names, refuses whole requests, and keeps the order of the request in the answer.
records/validate checks batches, partition/ knows the leaders, and transactional_produce checks transactions.
ApiVersions advertises versions from 0 on. A request of version 0-2 closes the connection. KIP-98, KIP-951 (current
leader), KIP-516 (topic ids from version 13).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import Access, access_of
from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.first_batch import (
    BEGINNING,
    LEGACY_MINIMUM_LENGTH,
    TRANSACTIONAL_BIT,
    FirstBatch,
    first_batch,
    is_transactional,
)
from kafkacompat.api.handler import Handler, NoResponse
from kafkacompat.api.plain_produce import append_plain
from kafkacompat.api.produce_answers import (
    ACKS,
    ADMIN_CLIENT_ID,
    ALL_REPLICAS,
    FIRST_VERSION_WITH_ZSTD,
    Answer,
    answer_of,
    name_of,
    waits_for,
    when_let_go,
)
from kafkacompat.api.produce_portions import Appending
from kafkacompat.api.transactional_produce import (
    ProducerAndSequence,
    Verdicts,
    judge,
    producer_of,
)
from kafkacompat.ids import TopicPartition
from kafkacompat.records.plain_produce import PlainProduce, parse_produce
from kafkacompat.records.validate import Allowance, TooMuchAtOnce, refusal_at_sight
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.produce_response import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.plain_produce import PlainAnswer
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.ports import Buffer
    from kafkacompat.wire.messages.produce_request import PartitionProduceData, TopicProduceData


ASKED_LIKE_PARTITIONS = 10
"""The cost of one question to the authorizer, in partitions."""
PLAIN_PARTITIONS_MAX = 200
"""Partitions of a request that is looked over in one pass."""
NAMED_A_STEP = 2000
"""Partitions per step of each pass before the append. One takes 1 to 5 microseconds."""


def parse_plain(node: Node, frame: memoryview, position: int, version: int) -> PlainProduce | None:
    # An authorizer is asked about each topic, in the other way.
    return (
        None
        if node.authorizer is not None
        else parse_produce(frame, position, version, node.partitions.limits)
    )


def handle(
    node: Node, context: RequestContext, request: ProduceRequest | PlainProduce
) -> PlainAnswer | Awaitable[Any]:
    if type(request) is PlainProduce:
        answer = append_plain(node, context, request)
        if answer is not None:
            return answer
        request = _decoded(request)
    assert isinstance(request, ProduceRequest)
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        first = first_batch(topics[0].partition_data[0].records)
        if first is FirstBatch.PLAIN and _may_write(node, context, topics[0]):
            return _append(node, context, request, topics, False, None)
        if first is FirstBatch.CORRUPT:
            return at_once(_refused_whole(context, request, ErrorCode.CORRUPT_MESSAGE, Pace(NAMED_A_STEP)))
    elif access_of(node, context) is None and _is_plain(topics):
        return _append(node, context, request, topics, True, None)
    return _in_steps(node, context, request)


def _decoded(request: PlainProduce) -> ProduceRequest:
    message: ProduceRequest = decoder(ProduceRequest, request.version)(request.frame, request.position)[0]
    return message


def _is_plain(topics: list[TopicProduceData]) -> bool:
    """Whether all passes of `_in_steps` before the append would find nothing: a few partitions of different topics, each
    named once, with one batch that is neither transactional nor plainly corrupt."""
    count = 0
    for topic in topics:
        partitions = topic.partition_data
        count += len(partitions)
        if not 0 < len(partitions) <= count <= PLAIN_PARTITIONS_MAX:
            return False
        for one in partitions:
            records = one.records
            if records is None or len(records) < BEGINNING.size:
                return False
            length, magic, attributes = BEGINNING.unpack_from(records)
            if magic != 2 or attributes & TRANSACTIONAL_BIT or length < LEGACY_MINIMUM_LENGTH:
                return False
        if len({one.index for one in partitions}) < len(partitions):
            return False
    return len(topics) == 1 or len({(topic.name, topic.topic_id) for topic in topics}) == len(topics)


async def _in_steps(node: Node, context: RequestContext, request: ProduceRequest) -> Any:
    """Handle several partitions, or a transaction. The connection is not read until all are appended, so that its
    batches stay in order. The value may be a Deferred: while it is waited for, the connection is read on."""
    pace = Pace(NAMED_A_STEP)
    first = await in_turns(_first_that_tells(request.topic_data, pace))
    request.topic_data = topics = await in_turns(without_repeats(request.topic_data, pace))
    if first is FirstBatch.CORRUPT:
        return await in_turns(_refused_whole(context, request, ErrorCode.CORRUPT_MESSAGE, pace))
    access = access_of(node, context)
    if first is FirstBatch.TRANSACTIONAL and not _may_write_transaction(access, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return await in_turns(_refused_whole(context, request, code, pace))
    hidden: list[TopicProduceResponse] = []
    if access is not None:
        topics = await in_turns(_writable(node, access, request, context.api_version, pace, hidden))
    verdicts: Any = None
    if first is FirstBatch.TRANSACTIONAL:
        batches = await in_turns(_transactional_batches(node, topics, context.api_version, pace))
        verdicts = await _judged(node, context, request, batches, pace)
        if not isinstance(verdicts, Verdicts):
            return verdicts
    return _append(node, context, request, topics, True, verdicts, hidden)


def _may_write(node: Node, context: RequestContext, topic: TopicProduceData) -> bool:
    """Return whether the sender may write to the topic, which may be unknown. An unknown id is not refused here."""
    access = access_of(node, context)
    if access is None:
        return True
    name = name_of(node, topic, context.api_version)
    return name is None or access.allows(AclOperation.WRITE, ResourceType.TOPIC, name)


def _may_write_transaction(access: Access | None, transactional_id: str | None) -> bool:
    return transactional_id is not None and (
        access is None or access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    )


def _writable(
    node: Node,
    access: Access,
    request: ProduceRequest,
    version: int,
    pace: Pace,
    hidden: list[TopicProduceResponse],
) -> Work[list[TopicProduceData]]:
    """Return the topics that the sender may write to. The results of the other topics are added to `hidden`."""
    writable = []
    for topic in request.topic_data:
        name = name_of(node, topic, version)
        if name is None or access.allows(
            AclOperation.WRITE, ResourceType.TOPIC, name, count=len(topic.partition_data)
        ):
            writable.append(topic)
        else:
            part = ProduceRequest(acks=ALL_REPLICAS, topic_data=[topic])
            refused: Any = yield from _refused(part, ErrorCode.TOPIC_AUTHORIZATION_FAILED, pace)
            hidden += refused.responses
        if pace.is_over(ASKED_LIKE_PARTITIONS):
            yield TURN_COST
    return writable


def _append(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    several: bool,
    verdicts: Verdicts | None,
    hidden: Sequence[TopicProduceResponse] = (),
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
    return Appending(node, context, request, topics, several, verdicts, opens_first, hidden).run()


def _append_only(
    node: Node, context: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> Answer | None:
    """The fast path for most requests: one batch, appended at once. Returns None, before any effect, for any other
    request.

    Raises TooMuchAtOnce, also before any effect.
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
    return when_let_go(waits, response, {partition: answer}) if waits else response


async def _judged(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    batches: Mapping[TopicPartition, Buffer],
    pace: Pace,
) -> Any:
    """Return the verdicts on the transaction, or the answer that refuses the whole request."""
    version = context.api_version
    assert request.transactional_id is not None
    producers: dict[TopicPartition, ProducerAndSequence] = {}
    for partition, records in batches.items():
        producer = producer_of(records)
        if producer is not None:
            producers[partition] = producer
        if pace.is_over():
            await pause()
    if len({each[:2] for each in producers.values()}) > 1:
        return await in_turns(_refused_whole(context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, pace))
    return await judge(node, request.transactional_id, producers, version, request.timeout_ms, pace)


def _first_that_tells(topics: list[TopicProduceData], pace: Pace) -> Work[FirstBatch]:
    """Return whether the request is transactional or corrupt. The first batch that is one of the two decides."""
    for topic in topics:
        for one in topic.partition_data:
            first = first_batch(one.records)
            if first is not FirstBatch.PLAIN:
                return first
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():
            yield TURN_COST
    return FirstBatch.PLAIN


def _transactional_batches(
    node: Node, topics: list[TopicProduceData], version: int, pace: Pace
) -> Work[dict[TopicPartition, Buffer]]:
    """Return the transactional batches of known partitions. Records that do not have the shape of a batch are left out."""
    found: dict[TopicPartition, Buffer] = {}
    zstd_allowed = version >= FIRST_VERSION_WITH_ZSTD
    for topic in topics:
        name = name_of(node, topic, version)
        known = node.image.topics.get(name) if name is not None else None
        for one in topic.partition_data:
            if (
                name is not None
                and known is not None
                and one.index in known.partitions
                and is_transactional(one.records)
                and refusal_at_sight(one.records, zstd_allowed) is None
            ):
                found[TopicPartition(name, one.index)] = one.records
            if pace.is_over():
                yield TURN_COST
    return found


def without_repeats(topics: Iterable[TopicProduceData], pace: Pace) -> Work[list[TopicProduceData]]:
    """Return each partition once. Its last mention counts, as in Kafka's map.

    Topics without partitions are dropped, because Kafka answers partitions only. A request may name hundreds of
    thousands of such topics.
    """
    by_topic: dict[Any, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic in topics:
        if topic.partition_data:
            _, partitions = by_topic.setdefault((topic.name, topic.topic_id), (topic, {}))
            for one in topic.partition_data:
                partitions[one.index] = one
                if pace.is_over():
                    yield TURN_COST
        elif pace.is_over():
            yield TURN_COST
    found = []
    for topic, partitions in by_topic.values():
        topic.partition_data = list(partitions.values())
        found.append(topic)
        if pace.is_over():
            yield TURN_COST
    return found


def error_response(
    request: ProduceRequest | PlainProduce, code: ErrorCode, version: int
) -> ProduceResponse | NoResponse:
    if isinstance(request, PlainProduce):
        request = _decoded(request)
    return at_once(_refused(request, code, Pace(NAMED_A_STEP)))


def _refused_whole(
    context: RequestContext, request: ProduceRequest, code: ErrorCode, pace: Pace
) -> Work[ProduceResponse | NoResponse]:
    context.size_bytes = 0  # nothing was looked at, so it uses no bandwidth
    return (yield from _refused(request, code, pace))


def _refused(request: ProduceRequest, code: ErrorCode, pace: Pace) -> Work[ProduceResponse | NoResponse]:
    if request.acks == 0:
        return NoResponse.CLOSE
    responses = []
    for topic in request.topic_data:
        answers = []
        for one in topic.partition_data:
            answers.append(PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1))
            if pace.is_over():
                yield TURN_COST
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    return ProduceResponse(responses=responses)


HANDLER = Handler(handle, error_response, blocks=False, waits_at_will=True, parse_plain=parse_plain)
