"""DescribeGroups (key 15): classic groups and, on request, the operations allowed to the caller (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import access_of, group_operations
from kafkacompat.api.handler import Handler, Slices
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest


def describe_groups(node: Node, context: RequestContext, request: DescribeGroupsRequest) -> Deferred[Any]:
    answer = node.groups.describe_groups(request, context)
    if not request.include_authorized_operations:
        return answer
    access = access_of(node, context)

    def with_operations(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = group_operations(access, group.group_id)
        return response

    return answer.then(with_operations)


def _error_response(request: DescribeGroupsRequest, code: ErrorCode, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


HANDLER = Handler(
    function=describe_groups,
    error_response=_error_response,
    slices=Slices("groups", "groups", 20, lambda group_id: group_id),
    asks_coordinators=True,
)
