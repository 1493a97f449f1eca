"""BeginQuorumEpoch (key 53, versions 0-1): a new leader makes itself known to the voters. KIP-595, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest


def handle(
    node: ControllerNode, context: RequestContext, request: BeginQuorumEpochRequest
) -> Deferred[BeginQuorumEpochResponse]:
    return node.quorum.handle(request, context.api_version)


HANDLER = Handler(53, 0, 1, handle, top_level_error(BeginQuorumEpochResponse))
