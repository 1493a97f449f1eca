"""Fetch (key 1): convert the versions' request shapes into one, which partition/fetch serves.

Names, ids, the replica id and the isolation level are read from the place that the version has for them. The
FetchService handles limits, sessions and waits. From version 13 on topics have ids (KIP-516). From version 15 on the
follower's state is in a tag (KIP-903).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import CLUSTER_ACTION, Access, RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.route import EncodedAnswer
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.partition.service import FetchParameters, FetchRequestPartition
from kafkacompat.security.acl import AclOperation
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.plain_fetch import (
    FIRST_REQUEST_VERSION,
    FOLLOWER_NO_MORE,
    FOLLOWER_NO_TOPICS,
    FOLLOWER_SIZES,
    NAMES_NONE,
    NAMES_ONE,
    NO_MORE,
    NO_TOPICS,
    ONE,
    STATE,
    STATE_TAG,
    packed_response,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_EPOCH = -1
"""Any other negative epoch means the same."""
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
PACKED_ERRORS: Mapping[int, int] = {ErrorCode.NONE: 2}
"""Of a response and its partition."""
NAMED_AT_ONCE = 500
"""Topics, partitions and forgotten partitions of a fetch that are read from the request in one step."""

Forgotten = tuple[Uuid, str | None, int]


class PlainFetch:
    """A request without a rack that names at most one partition, and forgets none."""

    __slots__ = ("asked", "parameters", "replica_id", "session_id")

    replica_state = None

    def __init__(
        self, session_id: int, parameters: FetchParameters, asked: list[FetchRequestPartition]
    ) -> None:
        self.session_id = session_id
        self.parameters = parameters
        self.replica_id = parameters.replica_id
        self.asked = asked


def parse_plain(node: Node, frame: memoryview, position: int, version: int) -> PlainFetch | None:
    """Most requests of paced loads are plain: the last answer had records of one partition, or of none."""
    size = len(frame) - position
    if version < FIRST_REQUEST_VERSION:
        return None
    asked: list[FetchRequestPartition] = []
    replica_id = replica_epoch = -1
    no_topics, no_more = NO_TOPICS, NO_MORE
    if size in FOLLOWER_SIZES:
        size -= STATE.size
        tag, replica_id, replica_epoch, tags = STATE.unpack_from(frame, position + size)
        if tag != STATE_TAG or tags:
            return None
        no_topics, no_more = FOLLOWER_NO_TOPICS, FOLLOWER_NO_MORE
    if size == NAMES_ONE.size:
        (
            wait,
            least,
            most,
            isolation,
            session_id,
            session_epoch,
            topics,
            topic_id,
            partitions,
            index,
            leader_epoch,
            offset,
            last_epoch,
            log_start,
            partition_most,
            rest,
        ) = NAMES_ONE.unpack_from(frame, position)
        if topics != ONE or partitions != ONE or rest != no_more:
            return None
        if leader_epoch < NO_EPOCH:
            leader_epoch = NO_EPOCH
        asked.append(
            FetchRequestPartition(
                topic_id, None, index, offset, partition_most, leader_epoch, last_epoch, log_start
            )
        )
    elif size == NAMES_NONE.size:
        wait, least, most, isolation, session_id, session_epoch, rest = NAMES_NONE.unpack_from(
            frame, position
        )
        if rest != no_topics:
            return None
    else:
        return None
    if isolation != READ_UNCOMMITTED and isolation != READ_COMMITTED:
        return None
    return PlainFetch(
        session_id,
        FetchParameters(
            replica_id,
            replica_epoch,
            wait,
            least,
            most,
            isolation == READ_COMMITTED,
            "",
            session_id,
            session_epoch,
            True,
            version,
        ),
        asked,
    )


def packed(*values: Any) -> EncodedAnswer:
    """`values`: those of wire.plain_fetch.packed_response."""
    return EncodedAnswer([packed_response(*values)], PACKED_ERRORS)


def handle(
    node: Node, context: RequestContext, request: FetchRequest | PlainFetch
) -> FetchResponse | Awaitable[Any] | Work[FetchResponse]:
    if isinstance(request, PlainFetch):
        for one in request.asked:
            known = node.image.topics_by_id.get(one.topic_id)
            if known is not None:
                one.topic = known.name
        request.parameters.pack = packed
        return _fetched(node, context, request.parameters, request.asked, [])
    # Kafka has no better error code for an unknown isolation level.
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR, context.api_version)
    if len(request.topics) + len(request.forgotten_topics_data) > NAMED_AT_ONCE:
        return _in_steps(node, context, request)
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    asked: list[FetchRequestPartition] = []
    for topic in request.topics:
        if len(asked) + len(topic.partitions) > NAMED_AT_ONCE:
            return _in_steps(node, context, request)
        asked += _asked(node.image, topic, topic.partitions, uses_topic_ids)
    forgotten: list[Forgotten] = []
    for each in request.forgotten_topics_data:
        if len(forgotten) + len(each.partitions) > NAMED_AT_ONCE:
            return _in_steps(node, context, request)
        forgotten += [(each.topic_id, each.topic, partition) for partition in each.partitions]
    if len(asked) > 1:
        asked = list({(one.topic_id, one.topic, one.partition): one for one in asked}.values())
    return _fetched(node, context, _parameters(request, context.api_version), asked, forgotten)


async def _in_steps(node: Node, context: RequestContext, request: FetchRequest) -> Any:
    """As `handle`. A partition that is named twice is read once, with the values of its last mention."""
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    asked: dict[tuple[bytes, str | None, int], FetchRequestPartition] = {}
    pace = Pace(NAMED_AT_ONCE)
    for topic in request.topics:
        for start in range(0, len(topic.partitions), NAMED_AT_ONCE):
            some = topic.partitions[start : start + NAMED_AT_ONCE]
            for one in _asked(node.image, topic, some, uses_topic_ids):
                asked[one.topic_id, one.topic, one.partition] = one
            if pace.is_over(len(some)):
                await pause()
        if pace.is_over():  # many topics may have no partitions
            await pause()
    forgotten: list[Forgotten] = []
    for each in request.forgotten_topics_data:
        for start in range(0, len(each.partitions), NAMED_AT_ONCE):
            indexes = each.partitions[start : start + NAMED_AT_ONCE]
            forgotten += [(each.topic_id, each.topic, partition) for partition in indexes]
            if pace.is_over(len(indexes)):
                await pause()
        if pace.is_over():
            await pause()
    answer: Any = _fetched(
        node, context, _parameters(request, context.api_version), list(asked.values()), forgotten
    )
    return (await answer) if isinstance(answer, CoroutineType) else answer


def _asked(
    image: MetadataImage, topic: FetchTopic, partitions: Sequence[FetchPartition], uses_topic_ids: bool
) -> list[FetchRequestPartition]:
    name: str | None
    if uses_topic_ids:
        topic_id = topic.topic_id
        known = image.topics_by_id.get(topic_id)
        name = None if known is None else known.name
    else:
        name = topic.topic
        known = image.topics.get(name)
        topic_id = ZERO_UUID if known is None else known.id
    asked = []
    for one in partitions:
        asked.append(
            FetchRequestPartition(
                topic_id,
                name,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                max(one.current_leader_epoch, NO_EPOCH),
                one.last_fetched_epoch,
                one.log_start_offset,
            )
        )
    return asked


def _parameters(request: FetchRequest, version: int) -> FetchParameters:
    state = request.replica_state
    return FetchParameters(
        replica_id=request.replica_id if state is None else state.replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        rack_id=request.rack_id,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_IDS,
        version=version,
    )


def _fetched(
    node: Node,
    context: RequestContext,
    parameters: FetchParameters,
    asked: list[FetchRequestPartition],
    forgotten: list[Forgotten],
) -> FetchResponse | Awaitable[Any]:
    parameters.listener_name = context.listener_name
    throttling = context.throttling
    if throttling is not None:
        if parameters.replica_id >= 0:
            context.throttling = None
        else:
            parameters.max_bytes = min(parameters.max_bytes, throttling.fetch_bytes_max)
            parameters.throttle = partial(throttling.fetched, context)
    access = access_of(node, context)
    if access is not None:
        parameters.may_read = _readable(access, parameters.replica_id)
    return node.fetches.fetch(parameters, asked, forgotten)


def _readable(access: Access, replica_id: int) -> Callable[[str | None], bool] | None:
    """Return the check of a topic's right, or None if everything may be read. A follower may read all topics or none."""
    if replica_id >= 0:
        is_node = CLUSTER_ACTION.refusal(access, None) == ErrorCode.NONE
        return None if is_node else lambda topic: False
    readable = RightToTopics(access, AclOperation.READ)
    return lambda topic: topic is None or readable.holds(topic)


def error_response(request: FetchRequest | PlainFetch, code: ErrorCode, version: int) -> FetchResponse:
    return at_once(_refused(request, code, version))


def _refused(request: FetchRequest | PlainFetch, code: ErrorCode, version: int) -> Work[FetchResponse]:
    response = FetchResponse(error_code=code, session_id=request.session_id)
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:  # the top-level error stands for all partitions, as in Kafka
        return response
    assert not isinstance(request, PlainFetch)
    pace = Pace(NAMED_AT_ONCE)
    for topic in request.topics:
        told = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        response.responses.append(told)
        for one in topic.partitions:
            told.partitions.append(
                PartitionData(partition_index=one.partition, error_code=code, high_watermark=-1, records=b"")
            )
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():
            yield TURN_COST
    return response


HANDLER = Handler(
    handle, error_response, ends_with_connection=True, waits_at_will=True, parse_plain=parse_plain
)
