"""Heartbeat (key 12) of classic groups: passed to the group coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest


def heartbeat(node: Node, context: RequestContext, request: HeartbeatRequest) -> Deferred[Any]:
    return node.groups.heartbeat(request, context)


HANDLER = Handler(
    function=heartbeat,
    error_response=top_level_error(HeartbeatResponse),
    repeats=True,
    asks_coordinators=True,
)
