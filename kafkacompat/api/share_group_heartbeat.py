"""ShareGroupHeartbeat (key 76, version 1): members of share groups join, report and leave (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.controller.features import SHARE_VERSION
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

FIRST_LEVEL_WITH_SHARE_GROUPS = 1
MEMBER_ID_LENGTH_MAX = 36


def share_group_heartbeat(
    node: Node, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Deferred[Any]:
    if not serves_share_groups(node):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not is_valid_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="Invalid member id in the request."
        )
    rights = RightToTopics(access_of(node, context), AclOperation.DESCRIBE)
    if not all(rights.holds(name) for name in set(request.subscribed_topic_names or ())):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return node.groups.share.heartbeat(request, context)


def serves_share_groups(node: Node) -> bool:
    """Whether the cluster has finalized them."""
    return node.image.features.get(SHARE_VERSION, 0) >= FIRST_LEVEL_WITH_SHARE_GROUPS


def is_valid_member_id(member_id: str | None) -> bool:
    """Its length counts in UTF-16 units, as in Java."""
    if not member_id:
        return False
    return len(member_id.encode("utf-16-le", "surrogatepass")) // 2 <= MEMBER_ID_LENGTH_MAX


HANDLER = Handler(function=share_group_heartbeat, error_response=top_level_error(ShareGroupHeartbeatResponse))
