"""SyncGroup (key 14): only converts the shapes. From version 5 on the request must name the protocol (KIP-559)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

FIRST_VERSION_WITH_PROTOCOL = 5


def sync_group(
    node: Node, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Deferred[Any]:
    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and context.api_version >= FIRST_VERSION_WITH_PROTOCOL:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return node.groups.sync_group(request, context)


HANDLER = Handler(
    function=sync_group,
    error_response=top_level_error(SyncGroupResponse),
    waits_at_will=True,
    asks_coordinators=True,
)
