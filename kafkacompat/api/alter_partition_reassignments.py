"""AlterPartitionReassignments (key 45, versions 0-1): to the controller. KIP-455, KIP-860."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, told_in_steps, top_level_error
from kafkacompat.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.stepping import Steps
    from kafkacompat.wire.messages.alter_partition_reassignments_request import (
        AlterPartitionReassignmentsRequest,
    )


def handle(
    node: AnyNode, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    return told_in_steps(node.controller.alter_partition_reassignments(request, context))


HANDLER = Handler(
    45, 0, 1, handle, top_level_error(AlterPartitionReassignmentsResponse), waits_for_opening=True
)
