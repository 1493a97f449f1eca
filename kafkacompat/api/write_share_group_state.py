"""WriteShareGroupState (key 85): the records of share-partitions whose state their leader has changed.

Brokers send it to the share coordinator of the share-partitions. KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.share_state_errors import refused_partitions
from kafkacompat.wire.messages import write_share_group_state_response as told

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.write_share_group_state_request import WriteShareGroupStateRequest


async def handle(node: Node, context: RequestContext, request: WriteShareGroupStateRequest) -> Any:
    return await node.share_coordinator.write_state(request)


def error_response(
    request: WriteShareGroupStateRequest, code: ErrorCode, version: int
) -> told.WriteShareGroupStateResponse:
    results = refused_partitions(request, code, told.WriteStateResult, told.PartitionResult)
    return told.WriteShareGroupStateResponse(results=results)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
