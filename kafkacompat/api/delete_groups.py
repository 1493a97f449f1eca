"""DeleteGroups (key 42): passed to the group coordinator. Every group has a separate result. KIP-229."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import SLICES_PATIENCE_MS, Handler, Slices
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest

DELETED_A_STEP = 50
"""Groups per step. One takes up to 100 microseconds, with its records, and more if it is refused."""


def delete_groups(node: Node, context: RequestContext, request: DeleteGroupsRequest) -> Deferred[Any]:
    return node.groups.delete_groups(request, context)


def _error_response(request: DeleteGroupsRequest, code: ErrorCode, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names
        ]
    )


HANDLER = Handler(
    function=delete_groups,
    error_response=_error_response,
    slices=Slices("groups_names", "results", DELETED_A_STEP, str, patience_ms=SLICES_PATIENCE_MS),
    asks_coordinators=True,
)
