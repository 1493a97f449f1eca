"""AlterConfigs (key 33, versions 0-2): the old call that replaces a resource's whole set (G7), done by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest


def handle(
    node: AnyNode, context: RequestContext, request: AlterConfigsRequest
) -> Deferred[AlterConfigsResponse]:
    return node.controller.alter_configs(request, context)


def error_response(request: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


HANDLER = Handler(33, 0, 2, handle, error_response)
