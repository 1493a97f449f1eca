"""OffsetCommit (key 8): existing topics go to the group coordinator, unknown topics are refused here.

The coordinator gets topic ids in every version, because a name alone does not show that a topic was deleted and
created again. KIP-848 (topic ids from version 10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import COMMITTED_PIECE, in_pieces, named_by, named_in, with_refused
from kafkacompat.api.plain_commits import FIRST_VERSION_WITH_TOPIC_IDS, body_position, parse_plain
from kafkacompat.api.route import FLEXIBLE_PREFIX, SIZE
from kafkacompat.group.service import PlainCommit, commit_refusal
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.ports.dispatcher import Reply

Refused: TypeAlias = "dict[tuple[str, bytes], OffsetCommitResponseTopic]"
"""By topic name and id."""
HEADER_BYTES = FLEXIBLE_PREFIX.size - SIZE.size
"""Of a response."""


def offset_commit(
    node: Node, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[Any]:
    if named_in(request.topics) > COMMITTED_PIECE:
        return in_pieces(offset_commit, node, context, request, COMMITTED_PIECE)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    image = node.image
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    good: list[OffsetCommitRequestTopic] = []
    refused: Refused = {}
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        name = topic.name if known is None else known.name
        if not (by_id and known is None) and not readable.holds(name):
            indexes = [each.partition_index for each in topic.partitions]
            _refuse(refused, topic, indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        if known is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _refuse(refused, topic, [each.partition_index for each in topic.partitions], error)
            continue
        topic.name, topic.topic_id = known.name, known.id
        absent = [
            each.partition_index for each in topic.partitions if each.partition_index not in known.partitions
        ]
        if absent:
            _refuse(refused, topic, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [each for each in topic.partitions if each.partition_index in known.partitions]
        if topic.partitions:
            good.append(topic)
    if not good:
        return named_by(OffsetCommitResponse(topics=list(refused.values())), by_id)
    request.topics = good
    answer = node.groups.offset_commit(request, context)
    return answer.then(lambda response: named_by(with_refused(response, refused), by_id))


def _refuse(
    refused: Refused, topic: OffsetCommitRequestTopic, partitions: list[int], error: ErrorCode
) -> None:
    found = _refusal(topic, partitions, error)
    refused.setdefault(
        (topic.name, topic.topic_id),
        OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[]),
    ).partitions += found.partitions


def _refusal(
    topic: OffsetCommitRequestTopic, partitions: list[int], error: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=error) for index in partitions
        ],
    )


def handle(
    node: Node, context: RequestContext, request: OffsetCommitRequest | PlainCommit
) -> OffsetCommitResponse | Awaitable[Any]:
    if not isinstance(request, PlainCommit):
        return offset_commit(node, context, request)
    answer = node.groups.plain_commit(request) if request.answer is None else request.answer
    if isinstance(answer, Exception):
        raise answer
    return answer.then(lambda code: _error_response(request, code, context.api_version))


def answer_frame(
    node: Node, frame: memoryview, version: int, correlation_id: int
) -> tuple[Reply, int] | PlainCommit | None:
    position = body_position(frame)
    request = parse_plain(node, frame, position, version) if position else None
    if request is None:
        return None
    try:
        request.answer = answer = node.groups.plain_commit(request)
        if answer.done and answer.result() is NONE:
            reply = request.shape.reply
            prefix = FLEXIBLE_PREFIX.pack(HEADER_BYTES + len(reply), correlation_id)
            return [prefix + reply], len(request.offsets)
    except Exception as error:
        request.answer = error
    return request


def _error_response(
    request: OffsetCommitRequest | PlainCommit, code: ErrorCode, version: int
) -> OffsetCommitResponse:
    if isinstance(request, PlainCommit):
        request = request.shape.request
    return named_by(commit_refusal(request, code), version >= FIRST_VERSION_WITH_TOPIC_IDS)


HANDLER = Handler(
    function=handle,
    error_response=_error_response,
    asks_coordinators=True,
    parse_plain=parse_plain,
    answer_frame=answer_frame,
)
