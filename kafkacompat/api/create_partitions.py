"""CreatePartitions (key 37): forwarded to the controller. The answer contains every requested topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest


async def handle(
    node: AnyNode, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    response: CreatePartitionsResponse = await node.controller.create_partitions(request, context)
    return response


def error_response(
    request: CreatePartitionsRequest, code: ErrorCode, version: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
