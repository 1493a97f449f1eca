"""LeaveGroup on a classic group.

It removes members, pending ids and, on an administrator's request, static members by instance id (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.rebalance import (
    maybe_complete_join_phase,
    maybe_prepare_rebalance_or_complete_join,
    remove_member,
)
from kafkacompat.group.environment import Environment, heartbeat_key
from kafkacompat.group.records import GroupRecord
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.coordinator.core import Reply
    from kafkacompat.wire.messages.leave_group_request import MemberIdentity

_S = ClassicGroupState


def leave(
    env: Environment, group_id: str, members: Sequence[MemberIdentity], now_ms: int
) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
    """One answer per member, in the order of the request. A missing group has no members."""
    group = env.classic_group(group_id)
    if group is None:
        return CoordinatorResult((), unknown_members(members))
    if group.state is _S.DEAD:
        return CoordinatorResult((), LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    answers = []
    replies: list[Reply] = []
    for identity in members:
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=_leave_one(env, group, identity, replies),
            )
        )
    response = LeaveGroupResponse(members=answers)
    if all(answer.error_code for answer in answers):
        return CoordinatorResult((), response)
    if group.state in (_S.STABLE, _S.COMPLETING_REBALANCE):
        result = maybe_prepare_rebalance_or_complete_join(env, group, now_ms)
    else:
        result = maybe_complete_join_phase(env, group, now_ms)
    return result.answering(response).after(replies)


def unknown_members(members: Sequence[MemberIdentity]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for identity in members
        ]
    )


def _leave_one(
    env: Environment, group: ClassicGroup, identity: MemberIdentity, replies: list[Reply]
) -> ErrorCode:
    """Adds the replies to the member's parked requests."""
    if identity.member_id == "":
        member_id = (
            None
            if identity.group_instance_id is None
            else group.static_members.get(identity.group_instance_id)
        )
        if member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        replies += remove_member(env, group, group.members[member_id])
        return ErrorCode.NONE
    if identity.member_id in group.pending_join:
        group.remove(identity.member_id)
        env.timers.cancel(heartbeat_key(group, identity.member_id))
        return ErrorCode.NONE
    error = group.validate_member(identity.member_id, identity.group_instance_id)
    if error is ErrorCode.NONE:
        replies += remove_member(env, group, group.members[identity.member_id])
    return error
