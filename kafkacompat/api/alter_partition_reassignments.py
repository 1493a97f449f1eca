"""AlterPartitionReassignments (key 45): to the controller. KIP-455, KIP-860."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
    )


async def handle(
    node: AnyNode, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response: AlterPartitionReassignmentsResponse = await node.controller.alter_partition_reassignments(
        request, context
    )
    return response


def error_response(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index, error_code=code, error_message=None
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


HANDLER = Handler(handle, error_response, waits_for_opening=True)
