"""ReadShareGroupStateSummary (key 87): the offsets and epochs of share-partitions, without their batches.

Brokers send it to the share coordinator of the share-partitions. KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.share_state_errors import refused_partitions
from kafkacompat.wire.messages import read_share_group_state_summary_response as told

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.read_share_group_state_summary_request import (
        ReadShareGroupStateSummaryRequest,
    )


async def handle(node: Node, context: RequestContext, request: ReadShareGroupStateSummaryRequest) -> Any:
    return await node.share_coordinator.read_state_summary(request)


def error_response(
    request: ReadShareGroupStateSummaryRequest, code: ErrorCode, version: int
) -> told.ReadShareGroupStateSummaryResponse:
    results = refused_partitions(request, code, told.ReadStateSummaryResult, told.PartitionResult)
    return told.ReadShareGroupStateSummaryResponse(results=results)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
