"""ExpireDelegationToken (key 40): forwarded to the controller, which checks the sender's right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.token_requests import NO_TIMESTAMP, allows_token_requests
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest


def handle(
    node: AnyNode, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Deferred[ExpireDelegationTokenResponse]:
    if not allows_token_requests(context):
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
        )
    return node.controller.expire_delegation_token(request, context)


HANDLER = Handler(handle, top_level_error(ExpireDelegationTokenResponse))
