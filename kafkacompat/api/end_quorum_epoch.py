"""EndQuorumEpoch (key 54, versions 0-1): a leader gives up, and says who should be next. KIP-595, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.end_quorum_epoch_request import EndQuorumEpochRequest


def handle(
    node: ControllerNode, context: RequestContext, request: EndQuorumEpochRequest
) -> Deferred[EndQuorumEpochResponse]:
    return node.quorum.handle(request, context.api_version)


HANDLER = Handler(54, 0, 1, handle, top_level_error(EndQuorumEpochResponse))
