"""ListPartitionReassignments (key 46, version 0): to the controller, whose state is the newest. KIP-455."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, told_in_steps, top_level_error
from kafkacompat.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.stepping import Steps
    from kafkacompat.wire.messages.list_partition_reassignments_request import (
        ListPartitionReassignmentsRequest,
    )


def handle(
    node: AnyNode, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    return told_in_steps(node.controller.list_partition_reassignments(request, context))


HANDLER = Handler(46, 0, 0, handle, top_level_error(ListPartitionReassignmentsResponse))
