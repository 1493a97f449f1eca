"""CreateAcls (key 30): forwarded to the controller. Each entry has a separate result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import refuse_unknown
from kafkacompat.api.handler import Handler
from kafkacompat.tasks import pause
from kafkacompat.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.create_acls_request import CreateAclsRequest

CHECKED_A_STEP = 10_000
"""Entries per step. One takes up to a microsecond."""


async def handle(node: AnyNode, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for number, each in enumerate(request.creations, 1):
        refuse_unknown(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        if number % CHECKED_A_STEP == 0:
            await pause()
    answer: CreateAclsResponse = await node.controller.create_acls(request, context)
    return answer


def error_response(request: CreateAclsRequest, code: ErrorCode, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=None) for _ in request.creations]
    )


HANDLER = Handler(handle, error_response)
