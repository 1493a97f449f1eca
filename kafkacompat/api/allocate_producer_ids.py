"""AllocateProducerIds (key 67, version 0): a block of producer ids for a broker, on the controller listener. KIP-730."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest


def handle(
    node: ControllerNode, context: RequestContext, request: AllocateProducerIdsRequest
) -> Deferred[AllocateProducerIdsResponse]:
    return node.controller.allocate_producer_ids(request, context)


HANDLER = Handler(67, 0, 0, handle, top_level_error(AllocateProducerIdsResponse))
