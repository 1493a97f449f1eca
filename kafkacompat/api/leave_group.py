"""LeaveGroup (key 13): one member before version 3, a list of members from version 3 on (KIP-345).

In the old shape the member's error is the error of the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.tasks import pause
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext

FIRST_BATCHED_VERSION = 3
PIECE = 500
"""Members per step. One takes up to ten microseconds."""


def leave_group(node: Node, context: RequestContext, request: LeaveGroupRequest) -> Awaitable[Any]:
    if context.api_version >= FIRST_BATCHED_VERSION:
        if len(request.members) > PIECE:
            return _in_pieces(node, context, request)
        return node.groups.leave_group(request, context)
    batched = LeaveGroupRequest(
        group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]
    )
    return node.groups.leave_group(batched, context).then(_single)


async def _in_pieces(node: Node, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Handle the request as several small ones, one after another. An error of the whole group is returned as the answer."""
    members: list[MemberResponse] = []
    for start in range(0, len(request.members), PIECE):
        part = LeaveGroupRequest(group_id=request.group_id, members=request.members[start : start + PIECE])
        answer = await node.groups.leave_group(part, context)
        if answer.error_code:
            return LeaveGroupResponse(error_code=answer.error_code)
        members += answer.members
        await pause()
    return LeaveGroupResponse(members=members)


def _single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code
    if not error and response.members:
        error = response.members[0].error_code
    return LeaveGroupResponse(error_code=error)


HANDLER = Handler(
    function=leave_group,
    error_response=top_level_error(LeaveGroupResponse),
    asks_coordinators=True,
)
