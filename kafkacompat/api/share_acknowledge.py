"""ShareAcknowledge (key 79): members of share groups say what became of acquired records (KIP-932)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.share_requests import is_valid_member_id, readable, serves_share_fetches
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest


def share_acknowledge(
    node: Node, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Awaitable[Any]:
    if request.group_id is None or not is_valid_member_id(request.member_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    assert node.shares is not None
    return node.shares.share_acknowledge(request, context, readable(access_of(node, context)))


HANDLER = Handler(
    is_served=serves_share_fetches,
    function=share_acknowledge,
    error_response=top_level_error(ShareAcknowledgeResponse),
    asks_coordinators=True,
)
