"""ConsumerGroupHeartbeat (key 68): members of consumer groups join, report and leave (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of, describable
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.subscribed_names import are_too_many, when_visible
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

GROUP_VERSION = "group.version"
FIRST_LEVEL_WITH_CONSUMER_GROUPS = 1


def consumer_group_heartbeat(
    node: Node, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[Any]:
    if are_too_many(request.subscribed_topic_names):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    access = access_of(node, context)
    if access is None:
        return node.groups.consumer_group_heartbeat(request, context, None)
    return when_visible(
        RightToTopics(access, AclOperation.DESCRIBE),
        request.subscribed_topic_names,
        lambda: node.groups.consumer_group_heartbeat(request, context, describable(access)),
        ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )


def serves_consumer_groups(node: Node) -> bool:
    """Whether the cluster has finalized them and group.coordinator.rebalance.protocols has them."""
    level = node.image.features.get(GROUP_VERSION, 0)
    protocols = node.config.get_list("group.coordinator.rebalance.protocols")
    return level >= FIRST_LEVEL_WITH_CONSUMER_GROUPS and "consumer" in protocols


HANDLER = Handler(
    is_served=serves_consumer_groups,
    function=consumer_group_heartbeat,
    error_response=top_level_error(ConsumerGroupHeartbeatResponse),
    repeats=True,
    asks_coordinators=True,
)
