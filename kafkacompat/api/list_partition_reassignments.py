"""ListPartitionReassignments (key 46): forwarded to the controller, which has the newest state. KIP-455."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.list_partition_reassignments_request import (
        ListPartitionReassignmentsRequest,
    )


async def handle(
    node: AnyNode, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    response: ListPartitionReassignmentsResponse = await node.controller.list_partition_reassignments(
        request, context
    )
    return response


def error_response(
    request: ListPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    """Like Kafka, return the requested partitions without any reassignment."""
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


HANDLER = Handler(handle, error_response)
