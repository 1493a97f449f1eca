"""CreateTopics (key 19, versions 2-7): to the controller, which checks and answers each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, told_in_steps
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest


def handle(
    node: AnyNode, context: RequestContext, request: CreateTopicsRequest
) -> Steps[CreateTopicsResponse]:
    return told_in_steps(node.controller.create_topics(request, context))


def error_response(request: CreateTopicsRequest, code: ErrorCode, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
            for topic in request.topics
        ]
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
