"""AlterShareGroupOffsets (key 91, version 0): the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import cut, named_in
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.deferred import Deferred
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.error_texts import error_text
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps

ALTERED_PIECE = 1_000
"""Partitions per piece. With each piece the group's record of all its states is written twice, and the states themselves are
made in further steps."""
Topics = dict[str, AlterShareGroupOffsetsResponseTopic]
"""By name. A topic that is named twice is answered once, with the partitions of both."""


def alter_share_group_offsets(
    node: Node, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Deferred[Any] | Steps[Any]:
    if named_in(request.topics) > ALTERED_PIECE:
        return _in_pieces(node, context, request)
    good: list[AlterShareGroupOffsetsRequestTopic] = []
    told: Topics = {}
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    for topic in request.topics:
        known = node.image.topics.get(topic.topic_name)
        if not readable.holds(topic.topic_name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            good.append(topic)
            continue
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        if known is not None:
            answer.topic_id = known.id
        answer.partitions = [
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=error_text(code)
            )
            for each in topic.partitions
        ]
        _put_together(told, [answer])
    asked = AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=good)

    def merged(response: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
        if not response.error_code:
            _put_together(told, response.responses)
            response.responses = list(told.values())
        return response

    return node.groups.share_offsets.alter(asked, context).then(merged)


def _in_pieces(
    node: Node, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Steps[AlterShareGroupOffsetsResponse]:
    """Like many small requests, one after another."""
    told: Topics = {}
    for piece in cut(request.topics, ALTERED_PIECE):
        part = AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=piece)
        answer: Any = alter_share_group_offsets(node, context, part)
        if isinstance(answer, Deferred):
            answer = yield answer
        if answer.error_code:
            return answer  # type: ignore[no-any-return]  # a response
        _put_together(told, answer.responses)
    return AlterShareGroupOffsetsResponse(responses=list(told.values()))


def _put_together(told: Topics, more: list[AlterShareGroupOffsetsResponseTopic]) -> None:
    for topic in more:
        known = told.setdefault(topic.topic_name, topic)
        if known is not topic:
            known.partitions += topic.partitions


def _error_response(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=error_text(code))


HANDLER = Handler(
    is_served=serves_share_groups, function=alter_share_group_offsets, error_response=_error_response
)
