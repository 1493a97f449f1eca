"""LeaveGroup (key 13, versions 0-5): one member before version 3, a list since (KIP-345).

The error of the one member is the response's own in the old shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred

FIRST_BATCHED_VERSION = 3


def leave_group(node: Node, context: RequestContext, request: LeaveGroupRequest) -> Deferred[Any]:
    if context.api_version >= FIRST_BATCHED_VERSION:
        return node.groups.leave_group(request, context)
    batched = LeaveGroupRequest(
        group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]
    )
    return node.groups.leave_group(batched, context).then(_single)


def _single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code
    if not error and response.members:
        error = response.members[0].error_code
    return LeaveGroupResponse(error_code=error)


HANDLER = Handler(
    function=leave_group,
    error_response=top_level_error(LeaveGroupResponse),
)
