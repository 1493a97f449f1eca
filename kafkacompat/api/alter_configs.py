"""AlterConfigs (key 33, versions 0-2): the old call that replaces a resource's whole set, done by the controller.

Other brokers' settings are refused, for only they may pass them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, told_in_steps
from kafkacompat.api.node_names import LOOKED_AT_A_STEP, in_their_places, refused_here
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps


def handle(
    node: AnyNode, context: RequestContext, request: AlterConfigsRequest
) -> Steps[AlterConfigsResponse]:
    own: dict[int, AlterConfigsResourceResponse] = {}
    others: list[AlterConfigsResource] = []
    for position, one in enumerate(request.resources):
        if position and position % LOOKED_AT_A_STEP == 0:
            yield None
        refused = refused_here(node, one.resource_type, one.resource_name)
        if refused is None:
            others.append(one)
        else:
            own[position] = _answer(one, ErrorCode.INVALID_REQUEST, refused)
    if not own:
        whole: AlterConfigsResponse = yield from told_in_steps(
            node.controller.alter_configs(request, context)
        )
        return whole
    response = AlterConfigsResponse()
    if others:
        rest = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
        response = yield from told_in_steps(node.controller.alter_configs(rest, context))
    response.responses = in_their_places(own, response.responses)
    return response


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(request: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_answer(resource, code, None) for resource in request.resources])


HANDLER = Handler(handle, error_response)
