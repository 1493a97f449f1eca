"""ReadShareGroupState (key 84): the state of share-partitions, for their leader, whose epoch fences older leaders.

Brokers send it to the share coordinator of the share-partitions. KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.share_state_errors import refused_partitions
from kafkacompat.wire.messages import read_share_group_state_response as told

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.read_share_group_state_request import ReadShareGroupStateRequest


async def handle(node: Node, context: RequestContext, request: ReadShareGroupStateRequest) -> Any:
    return await node.share_coordinator.read_state(request)


def error_response(
    request: ReadShareGroupStateRequest, code: ErrorCode, version: int
) -> told.ReadShareGroupStateResponse:
    results = refused_partitions(request, code, told.ReadStateResult, told.PartitionResult)
    return told.ReadShareGroupStateResponse(results=results)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
