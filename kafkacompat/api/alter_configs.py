"""AlterConfigs (key 33): the old API that replaces all settings of a resource. The controller does it.

A broker refuses to forward another broker's settings: only that broker may forward them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.broker_configs import (
    LOOKED_AT_A_STEP,
    refused_broker_changes,
    refused_here,
    told_text,
    with_the_controllers,
)
from kafkacompat.api.handler import Handler
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext


async def handle(
    node: AnyNode, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    own: dict[int, AlterConfigsResourceResponse] = {}
    others: list[AlterConfigsResource] = []
    refusals = await in_turns(refused_broker_changes(node, request.resources, incremental=False))
    for position, one in enumerate(request.resources):
        if position and position % LOOKED_AT_A_STEP == 0:
            await pause()
        refused = refused_here(node, one.resource_type, one.resource_name)
        if position in refusals:
            own[position] = _answer(one, *refusals[position])
        elif refused is not None:
            own[position] = _answer(one, ErrorCode.INVALID_REQUEST, refused)
        else:
            others.append(one)

    def ask(rest: AlterConfigsRequest) -> Any:
        return node.controller.alter_configs(rest, context)

    return await with_the_controllers(own, others, request, ask, AlterConfigsResponse())


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=told_text(message),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(request: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_answer(resource, code, None) for resource in request.resources])


HANDLER = Handler(handle, error_response)
