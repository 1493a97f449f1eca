"""DeleteShareGroupState (key 86): forget share-partitions.

Brokers send it to the share coordinator of the share-partitions. KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.share_state_errors import refused_partitions
from kafkacompat.wire.messages import delete_share_group_state_response as told

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.delete_share_group_state_request import DeleteShareGroupStateRequest


async def handle(node: Node, context: RequestContext, request: DeleteShareGroupStateRequest) -> Any:
    return await node.share_coordinator.delete_state(request)


def error_response(
    request: DeleteShareGroupStateRequest, code: ErrorCode, version: int
) -> told.DeleteShareGroupStateResponse:
    results = refused_partitions(request, code, told.DeleteStateResult, told.PartitionResult)
    return told.DeleteShareGroupStateResponse(results=results)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
