"""ControllerRegistration (key 70, version 0): a controller says where it listens, to the active one. KIP-919."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.controller_registration_response import ControllerRegistrationResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.controller_registration_request import ControllerRegistrationRequest


def handle(
    node: ControllerNode, context: RequestContext, request: ControllerRegistrationRequest
) -> Deferred[ControllerRegistrationResponse]:
    return node.controller.controller_registration(request, context)


HANDLER = Handler(70, 0, 0, handle, top_level_error(ControllerRegistrationResponse))
