"""UnregisterBroker (key 64, version 0): a broker that will not come back is forgotten. KIP-631."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.unregister_broker_response import UnregisterBrokerResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest


def handle(
    node: AnyNode, context: RequestContext, request: UnregisterBrokerRequest
) -> Deferred[UnregisterBrokerResponse]:
    return node.controller.unregister_broker(request, context)


HANDLER = Handler(64, 0, 0, handle, top_level_error(UnregisterBrokerResponse))
