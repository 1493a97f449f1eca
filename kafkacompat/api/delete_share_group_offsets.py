"""DeleteShareGroupOffsets (key 92): an empty share group forgets topics (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.deferred import Deferred
from kafkacompat.security.acl import AclOperation
from kafkacompat.tasks import pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from kafkacompat.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext

TOPICS_AT_ONCE = 250


def delete_share_group_offsets(
    node: Node, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Awaitable[Any]:
    if len(request.topics) > TOPICS_AT_ONCE:
        return _in_pieces(node, context, request)
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    refused = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=error_text(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        )
        for topic in request.topics
        if not readable.holds(topic.topic_name)
    ]
    good = [topic for topic in request.topics if readable.holds(topic.topic_name)]
    asked = DeleteShareGroupOffsetsRequest(group_id=request.group_id, topics=good)

    def merged(response: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = [*refused, *response.responses]
        return response

    return node.groups.share_offsets.delete(asked, context).then(merged)


async def _in_pieces(
    node: Node, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Like many small requests, one after another."""
    told: list[DeleteShareGroupOffsetsResponseTopic] = []
    for start in range(0, len(request.topics), TOPICS_AT_ONCE):
        part = DeleteShareGroupOffsetsRequest(
            group_id=request.group_id, topics=request.topics[start : start + TOPICS_AT_ONCE]
        )
        answer: Any = delete_share_group_offsets(node, context, part)
        if isinstance(answer, Deferred):
            answer = await answer
        if answer.error_code:
            return answer  # type: ignore[no-any-return]  # a response
        await pause()  # the answer may have been there at once
        told += answer.responses
    return DeleteShareGroupOffsetsResponse(responses=told)


def _error_response(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=error_text(code))


HANDLER = Handler(
    is_served=serves_share_groups,
    function=delete_share_group_offsets,
    error_response=_error_response,
    asks_coordinators=True,
)
