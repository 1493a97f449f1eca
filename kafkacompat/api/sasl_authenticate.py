"""SaslAuthenticate (key 36, versions 0-2) where it is not due: on a listener without SASL.

Answered with ILLEGAL_SASL_STATE, the connection stays.
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

MESSAGE = "SaslAuthenticate came outside a SASL handshake, or on a listener without SASL."


def handle(
    node: AnyNode, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE)


HANDLER = Handler(handle, top_level_error(SaslAuthenticateResponse))
