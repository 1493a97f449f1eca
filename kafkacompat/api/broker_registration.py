"""BrokerRegistration (key 62, versions 0-4): a broker joins the cluster, on the controller listener. KIP-631, KIP-858."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest


def handle(
    node: ControllerNode, context: RequestContext, request: BrokerRegistrationRequest
) -> Deferred[BrokerRegistrationResponse]:
    return node.controller.broker_registration(request, context)


HANDLER = Handler(62, 0, 4, handle, top_level_error(BrokerRegistrationResponse))
