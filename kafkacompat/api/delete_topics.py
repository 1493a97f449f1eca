"""DeleteTopics (key 20): forwarded to the controller. Below version 6 topics are a list of names (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest

FIRST_VERSION_WITH_IDS = 6


async def handle(
    node: AnyNode, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    response: DeleteTopicsResponse = await node.controller.delete_topics(request, context)
    return response


def error_response(request: DeleteTopicsRequest, code: ErrorCode, version: int) -> DeleteTopicsResponse:
    if version >= FIRST_VERSION_WITH_IDS:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code)
                for topic in request.topics
            ]
        )
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
    )


HANDLER = Handler(handle, error_response)
