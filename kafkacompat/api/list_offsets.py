"""ListOffsets (key 2): offsets by timestamp or special value.

The version decides which special timestamps and error codes exist. A partition that is named twice is refused.
partition/list_offsets finds the offsets. KIP-79, KIP-207, KIP-734, KIP-1005.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.api.long_requests import partitions_asked
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import TopicPartition
from kafkacompat.partition.list_offsets import FIRST_VERSIONS
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
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
    if not _is_valid(request):
        return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.api_version)
    lookups = _Lookups(node, context, request)
    at_once(lookups.made())
    return lookups.response()


async def in_steps(node: Node, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    if not _is_valid(request):
        return await in_turns(_refused(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    lookups = _Lookups(node, context, request)
    try:
        for cost in lookups.made():
            await pause(cost)
            room = node.partitions.search_room()
            if room is not None:
                await room
    except BaseException:
        lookups.abandon()
        raise
    response = lookups.response()
    return await response if isinstance(response, Deferred) else response


def _is_valid(request: ListOffsetsRequest) -> bool:
    return request.isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)


class _Lookups:
    """The offsets of one request. Results of searches are filled in later. All other offsets are those of now."""

    def __init__(self, node: Node, context: RequestContext, request: ListOffsetsRequest) -> None:
        self._node = node
        self._context = context
        self._request = request
        # A topic that is named twice is answered once. A topic without partitions is not answered.
        self._topics: dict[str, ListOffsetsTopicResponse] = {}
        self._searches: list[Deferred[OffsetLookup]] = []
        self._waits: list[Deferred[None]] = []

    def made(self) -> Work[None]:
        topics = self._request.topics
        mentions: Counter[tuple[str, int]] = Counter()
        pace = Pace(COUNTED_A_STEP)
        for topic in topics:
            for start in range(0, len(topic.partitions), COUNTED_A_STEP):
                asked = topic.partitions[start : start + COUNTED_A_STEP]
                mentions.update([(topic.name, one.partition_index) for one in asked])
                if pace.is_over(len(asked)):
                    yield TURN_COST
            if pace.is_over():  # many topics may have no partitions
                yield TURN_COST
        lookups = Pace(LOOKED_UP_A_STEP)
        for topic in topics:
            if pace.is_over():
                yield TURN_COST
            for one in topic.partitions:
                # A partition that is named twice is refused once.
                key = topic.name, one.partition_index
                mentioned = mentions[key]
                if not mentioned:
                    if pace.is_over():
                        yield TURN_COST
                    continue
                mentions[key] = 0
                self._look_up(topic.name, one, is_repeated=mentioned > 1)
                if lookups.is_over(lookup_cost(self._node)):
                    yield TURN_COST

    def _look_up(self, topic: str, one: ListOffsetsPartition, is_repeated: bool) -> None:
        found: OffsetLookup | Deferred[OffsetLookup]
        if is_repeated:
            found = OffsetLookup(ErrorCode.INVALID_REQUEST)
        else:
            partition = TopicPartition(topic, one.partition_index)
            found = _look_up(self._node, self._context, partition, one, self._request)
        answer = ListOffsetsPartitionResponse(partition_index=one.partition_index)
        of_topic = self._topics.get(topic)
        if of_topic is None:
            of_topic = self._topics[topic] = ListOffsetsTopicResponse(name=topic)
        of_topic.partitions.append(answer)
        version = self._context.api_version
        if isinstance(found, OffsetLookup):
            _fill(answer, version, found)
        else:
            self._searches.append(found)
            self._waits.append(found.then(partial(_fill, answer, version)))

    def response(self) -> ListOffsetsResponse | Deferred[ListOffsetsResponse]:
        response = ListOffsetsResponse(topics=list(self._topics.values()))
        if not self._waits:
            return response
        found_all = gather(self._waits).then(lambda _: response)
        found_all.when_abandoned = self.abandon
        return found_all

    def abandon(self) -> None:
        for search in self._searches:
            search.abandon()


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
    first = FIRST_VERSIONS.get(one.timestamp)
    if one.timestamp < 0 and (first is None or context.api_version < first):
        return OffsetLookup(ErrorCode.UNSUPPORTED_VERSION)
    return node.partitions.list_offset(
        partition,
        one.timestamp,
        request.isolation_level == READ_COMMITTED,
        one.current_leader_epoch,
        request.replica_id,
        context.connection_id,
        request.timeout_ms,
    )


def error_response(request: ListOffsetsRequest, code: ErrorCode, version: int) -> ListOffsetsResponse:
    return at_once(_refused(request, code))


def _refused(request: ListOffsetsRequest, code: ErrorCode) -> Work[ListOffsetsResponse]:
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
                yield TURN_COST
        if pace.is_over():
            yield TURN_COST
    return ListOffsetsResponse(topics=topics)


HANDLER = Handler(
    handle,
    error_response,
    long=LongHandling(_size, LOOKED_UP_A_STEP, in_steps),
    ends_with_connection=True,
)
