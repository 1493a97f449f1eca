"""BrokerHeartbeat (key 63, versions 0-2): a broker reports to the controller and learns what it may do. KIP-631, KIP-858."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest


def handle(
    node: ControllerNode, context: RequestContext, request: BrokerHeartbeatRequest
) -> Deferred[BrokerHeartbeatResponse]:
    return node.controller.broker_heartbeat(request, context)


HANDLER = Handler(63, 0, 2, handle, top_level_error(BrokerHeartbeatResponse))
