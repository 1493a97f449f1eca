"""CreatePartitions (key 37, versions 0-3): forwarded to the controller. The answer contains every requested topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, told_in_steps
from kafkacompat.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest


def handle(
    node: AnyNode, context: RequestContext, request: CreatePartitionsRequest
) -> Steps[CreatePartitionsResponse]:
    return told_in_steps(node.controller.create_partitions(request, context))


def error_response(
    request: CreatePartitionsRequest, code: ErrorCode, version: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
