"""ShareGroupHeartbeat (key 76): members of share groups join, report and leave (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.share_requests import is_valid_member_id, serves_share_groups
from kafkacompat.api.subscribed_names import are_too_many, when_visible
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def share_group_heartbeat(
    node: Node, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Awaitable[Any]:
    if not is_valid_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    if are_too_many(request.subscribed_topic_names):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    access = access_of(node, context)
    if access is None:
        return node.groups.share.heartbeat(request, context)
    return when_visible(
        RightToTopics(access, AclOperation.DESCRIBE),
        request.subscribed_topic_names,
        lambda: node.groups.share.heartbeat(request, context),
        ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )


HANDLER = Handler(
    is_served=serves_share_groups,
    function=share_group_heartbeat,
    error_response=top_level_error(ShareGroupHeartbeatResponse),
    asks_coordinators=True,
)
