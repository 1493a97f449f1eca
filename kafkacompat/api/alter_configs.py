"""AlterConfigs (key 33, versions 0-2): the old call that replaces a resource's whole set (G7), done by the controller.

Duty: refuse other brokers' settings, which only they may pass on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.api.node_names import refused_here
from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext


def handle(
    node: AnyNode, context: RequestContext, request: AlterConfigsRequest
) -> Deferred[AlterConfigsResponse]:
    refusals = [refused_here(node, one.resource_type, one.resource_name) for one in request.resources]
    if not any(refusals):
        return node.controller.alter_configs(request, context)
    others = [one for one, refused in zip(request.resources, refusals, strict=True) if refused is None]

    def merge(response: AlterConfigsResponse) -> AlterConfigsResponse:
        answers = iter(response.responses)
        response.responses = [
            next(answers) if refused is None else _answer(one, ErrorCode.INVALID_REQUEST, refused)
            for one, refused in zip(request.resources, refusals, strict=True)
        ]
        return response

    if not others:
        return Deferred.of(merge(AlterConfigsResponse()))
    rest = AlterConfigsRequest(resources=others, validate_only=request.validate_only)
    return node.controller.alter_configs(rest, context).then(merge)


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


HANDLER = Handler(33, 0, 2, handle, error_response)
