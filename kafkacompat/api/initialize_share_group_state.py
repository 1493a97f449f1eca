"""InitializeShareGroupState (key 83): begin the state of share-partitions anew, whatever was known of them.

Brokers send it to the share coordinator of the share-partitions. KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.share_state_errors import refused_partitions
from kafkacompat.wire.messages import initialize_share_group_state_response as told

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.initialize_share_group_state_request import (
        InitializeShareGroupStateRequest,
    )


async def handle(node: Node, context: RequestContext, request: InitializeShareGroupStateRequest) -> Any:
    return await node.share_coordinator.initialize_state(request)


def error_response(
    request: InitializeShareGroupStateRequest, code: ErrorCode, version: int
) -> told.InitializeShareGroupStateResponse:
    results = refused_partitions(request, code, told.InitializeStateResult, told.PartitionResult)
    return told.InitializeShareGroupStateResponse(results=results)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
