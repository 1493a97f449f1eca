"""SaslAuthenticate (key 36) on a listener without SASL, where it is not expected.

The answer is ILLEGAL_SASL_STATE. The connection stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest

MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(
    node: AnyNode, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE)


HANDLER = Handler(handle, top_level_error(SaslAuthenticateResponse))
