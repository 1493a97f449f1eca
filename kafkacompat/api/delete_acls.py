"""DeleteAcls (key 31): forwarded to the controller. Each filter's result lists the matching entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import refuse_unknown_filter
from kafkacompat.api.handler import Handler
from kafkacompat.tasks import pause
from kafkacompat.wire.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.delete_acls_request import DeleteAclsRequest

CHECKED_A_STEP = 10_000
"""Filters per step. One takes up to a microsecond."""


async def handle(node: AnyNode, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for number, each in enumerate(request.filters, 1):
        refuse_unknown_filter(each)
        if number % CHECKED_A_STEP == 0:
            await pause()
    answer: DeleteAclsResponse = await node.controller.delete_acls(request, context)
    return answer


def error_response(request: DeleteAclsRequest, code: ErrorCode, version: int) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=None) for _ in request.filters]
    )


HANDLER = Handler(handle, error_response)
