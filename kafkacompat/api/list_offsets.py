"""ListOffsets (key 2, versions 1-11): offsets by timestamp or special value.

The version decides which special timestamps and error codes exist. A partition that is named twice is refused.
partition/list_offsets finds the offsets. KIP-79, KIP-207, KIP-734, KIP-1005.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.api.long_requests import partitions_asked
from kafkacompat.api.partition_services import OffsetLookup
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import TopicPartition
from kafkacompat.stepping.jobs import Pace, all_steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
FIRST_VERSION_OF_SPECIAL = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
FIRST_VERSION_WITH_EPOCH = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
COUNTED_A_STEP = 5_000
"""Partitions per step when they are counted. One takes half a microsecond."""
LOOKED_UP_A_STEP = 200
"""Partitions per step when they are looked up. One takes about 20 microseconds."""
OPENED_LIKE_LOOKUPS = 40
"""The cost of a partition whose log this request opens, in lookups."""


def handle(
    node: Node, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Deferred[ListOffsetsResponse]:
    return all_steps(in_steps(node, context, request, is_paced=False))


def in_steps(
    node: Node, context: RequestContext, request: ListOffsetsRequest, *, is_paced: bool = True
) -> Steps[ListOffsetsResponse | Deferred[ListOffsetsResponse]]:
    version = context.api_version
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return (yield from _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    mentions: Counter[tuple[str, int]] = Counter()
    pace = Pace(COUNTED_A_STEP)
    for topic in request.topics:
        for start in range(0, len(topic.partitions), COUNTED_A_STEP):
            asked = topic.partitions[start : start + COUNTED_A_STEP]
            mentions.update([(topic.name, one.partition_index) for one in asked])
            if pace.is_over(len(asked)):
                yield None
        if pace.is_over():  # many topics may have no partitions
            yield None
    # A topic that is named twice is answered once. A topic without partitions is not answered.
    topics: dict[str, ListOffsetsTopicResponse] = {}
    searches: list[Deferred[OffsetLookup]] = []
    waits: list[Deferred[None]] = []
    lookups = Pace(LOOKED_UP_A_STEP)

    def abandon() -> None:
        for search in searches:
            search.abandon()

    def pause(room: Deferred[None] | None) -> Steps[None]:
        try:
            yield room
        except GeneratorExit:
            abandon()
            raise

    for topic in request.topics:
        if pace.is_over():
            yield from pause(None)
        for one in topic.partitions:
            # A partition that is named twice is refused once.
            key = topic.name, one.partition_index
            mentioned = mentions[key]
            if not mentioned:
                if pace.is_over():
                    yield from pause(None)
                continue
            mentions[key] = 0
            found: OffsetLookup | Deferred[OffsetLookup]
            if mentioned > 1:
                found = OffsetLookup(ErrorCode.INVALID_REQUEST)
            else:
                found = _look_up(node, context, TopicPartition(topic.name, one.partition_index), one, request)
            answer = ListOffsetsPartitionResponse(partition_index=one.partition_index)
            of_topic = topics.get(topic.name)
            if of_topic is None:
                of_topic = topics[topic.name] = ListOffsetsTopicResponse(name=topic.name)
            of_topic.partitions.append(answer)
            if isinstance(found, OffsetLookup):
                _fill(answer, version, found)
            else:
                # The results of searches are filled in later. All other offsets are those of now.
                searches.append(found)
                waits.append(found.then(partial(_fill, answer, version)))
            if lookups.is_over(lookup_cost(node)):
                yield from pause(node.partitions.search_room() if is_paced else None)
    response = ListOffsetsResponse(topics=list(topics.values()))
    if not waits:
        return response
    found_all = gather(waits).then(lambda _: response)
    found_all.when_abandoned = abandon
    return found_all


def _size(node: Node, request: ListOffsetsRequest) -> int:
    return partitions_asked(node, request) * lookup_cost(node)


def lookup_cost(node: Node) -> int:
    """Return the cost of one partition, in lookups."""
    return OPENED_LIKE_LOOKUPS if node.partitions.opens_logs else 1


def _fill(answer: ListOffsetsPartitionResponse, version: int, found: OffsetLookup) -> None:
    error = found.error
    if error is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    answer.error_code = error
    answer.timestamp = found.timestamp_ms
    answer.offset = found.offset
    answer.leader_epoch = found.leader_epoch if version >= FIRST_VERSION_WITH_EPOCH else -1


def _look_up(
    node: Node,
    context: RequestContext,
    partition: TopicPartition,
    one: ListOffsetsPartition,
    request: ListOffsetsRequest,
) -> OffsetLookup | Deferred[OffsetLookup]:
    first = FIRST_VERSION_OF_SPECIAL.get(one.timestamp)
    if one.timestamp < 0 and (first is None or context.api_version < first):
        return OffsetLookup(ErrorCode.UNSUPPORTED_VERSION)
    return node.partitions.list_offset(
        partition,
        one.timestamp,
        request.isolation_level == READ_COMMITTED,
        one.current_leader_epoch,
        request.replica_id,
        context.connection_id,
    )


def error_response(request: ListOffsetsRequest, code: ErrorCode, version: int) -> ListOffsetsResponse:
    return all_steps(_refused(request, code))


def _refused(request: ListOffsetsRequest, code: ErrorCode) -> Steps[ListOffsetsResponse]:
    topics: list[ListOffsetsTopicResponse] = []
    pace = Pace(COUNTED_A_STEP)
    for topic in request.topics:
        told = ListOffsetsTopicResponse(name=topic.name)
        topics.append(told)
        for one in topic.partitions:
            told.partitions.append(
                ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
            )
            if pace.is_over():
                yield None
        if pace.is_over():
            yield None
    return ListOffsetsResponse(topics=topics)


HANDLER = Handler(
    handle,
    error_response,
    long=LongHandling(_size, LOOKED_UP_A_STEP, in_steps),
    ends_with_connection=True,
)
