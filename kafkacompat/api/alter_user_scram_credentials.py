"""AlterUserScramCredentials (key 51): forwarded to the controller. Each user has a separate result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
    )


def handle(
    node: AnyNode, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Deferred[AlterUserScramCredentialsResponse]:
    return node.controller.alter_user_scram_credentials(request, context)


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, version: int
) -> AlterUserScramCredentialsResponse:
    users = sorted({each.name for each in request.deletions} | {each.name for each in request.upsertions})
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=None) for user in users
        ]
    )


HANDLER = Handler(handle, error_response)
