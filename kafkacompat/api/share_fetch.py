"""ShareFetch (key 78): members of share groups acknowledge records and acquire others (KIP-932).

From version 2 on locks can be renewed (KIP-1222), and the number of acquired records can be a strict limit.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.share_requests import (
    FIRST_VERSION_WITH_RENEW,
    is_valid_member_id,
    readable,
    serves_share_fetches,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest


def share_fetch(
    node: Node, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[Any]:
    if request.group_id is None or not is_valid_member_id(request.member_id):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    renews = context.api_version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
    if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        # Nothing is fetched with a renewal: the locks might run out again before the answer.
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    assert node.shares is not None
    return node.shares.share_fetch(request, context, readable(access_of(node, context)))


HANDLER = Handler(
    is_served=serves_share_fetches,
    function=share_fetch,
    error_response=top_level_error(ShareFetchResponse),
    waits_at_will=True,
    needs_connection=True,
    asks_coordinators=True,
)
