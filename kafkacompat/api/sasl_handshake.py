"""SaslHandshake (key 17) on a listener without SASL, where it is not expected.

The answer is ILLEGAL_SASL_STATE. The connection stays open. Listeners with SASL answer this request before it comes
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest


def handle(node: AnyNode, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


HANDLER = Handler(handle, top_level_error(SaslHandshakeResponse))
