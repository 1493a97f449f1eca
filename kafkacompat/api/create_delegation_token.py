"""CreateDelegationToken (key 38): forwarded to the controller. Version 3 may name another owner
(KIP-373).

As in Apache Kafka, both the broker and the controller check the right to create tokens of another user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import access_of
from kafkacompat.api.context import ControllerNode
from kafkacompat.api.handler import Handler
from kafkacompat.api.token_requests import NO_TIMESTAMP, allows_token_requests
from kafkacompat.ports.dispatcher import ANONYMOUS, Principal
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.security.delegation_tokens import USER_TYPE
from kafkacompat.tasks import pause, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest

REQUESTER_SINCE = 3
"""The version whose response names the requester."""
RENEWERS_A_STEP = 20_000
"""Renewers that one step looks at."""


async def handle(
    node: AnyNode, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    version, requester, owner = context.api_version, context.principal, context.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            # Apache Kafka fails on a principal without a type, and answers with this error.
            return error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, version)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    if not allows_token_requests(context):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, version, owner, requester)
    access = access_of(node, context)
    if owner[:2] != requester[:2] and access is not None:
        name = f"{owner.type}:{owner.name}"
        if not access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, name):
            return _refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, version, owner, requester)
    if not isinstance(node, ControllerNode):
        for piece in pieces(request.renewers, RENEWERS_A_STEP):
            if any(each.principal_type != USER_TYPE for each in piece):
                return _refused(ErrorCode.INVALID_PRINCIPAL_TYPE, version, owner, requester)
            await pause()
    answer: CreateDelegationTokenResponse = await node.controller.create_delegation_token(request, context)
    if version < REQUESTER_SINCE:
        answer.token_requester_principal_type = answer.token_requester_principal_name = ""
    return answer


def _refused(
    code: ErrorCode, version: int, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
    if version >= REQUESTER_SINCE:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


def error_response(
    request: CreateDelegationTokenRequest, code: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    return _refused(code, version, ANONYMOUS, ANONYMOUS)


HANDLER = Handler(handle, error_response)
