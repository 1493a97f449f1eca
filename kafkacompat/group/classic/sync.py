"""SyncGroup on a classic group.

It parks the members that wait for the leader's assignment, writes the assignment, and hands it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Caller, CoordinatorResult
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.classic_group_member import EMPTY_ASSIGNMENT
from kafkacompat.group.classic.rebalance import (
    maybe_prepare_rebalance_or_complete_join,
    reset_and_propagate_assignments,
    set_and_propagate_assignments,
)
from kafkacompat.group.classic.records import group_metadata_record
from kafkacompat.group.environment import Environment, GroupResult, nothing, replied
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

_S = ClassicGroupState


def sync(env: Environment, request: SyncGroupRequest, caller: Caller) -> GroupResult:
    """Every path answers the caller, now or when the assignment is committed or the group rebalances again."""
    group = env.classic_group(request.group_id)
    if group is None or group.state is _S.EMPTY:
        return _refuse(caller, ErrorCode.UNKNOWN_MEMBER_ID)
    error = _validate(group, request)
    if error is not ErrorCode.NONE:
        return _refuse(caller, error)
    if group.state is _S.PREPARING_REBALANCE:
        return _refuse(caller, ErrorCode.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    group.pending_sync.discard(member.member_id)
    if group.state is _S.STABLE:
        return replied(
            caller,
            SyncGroupResponse(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            ),
        )
    # A member may send the request again on a new connection while the first one is parked. The first one is then
    # answered with an error.
    replies = member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = caller
    if group.leader_id != member.member_id:
        return nothing().after(replies)
    return _write_plan(env, group, request).after(replies)


def _write_plan(env: Environment, group: ClassicGroup, request: SyncGroupRequest) -> GroupResult:
    """Members missing from the leader's assignment get an empty one. Ids that are not members are ignored."""
    plan = {each.member_id: each.assignment for each in request.assignments}
    assignments = {member_id: plan.get(member_id, EMPTY_ASSIGNMENT) for member_id in group.members}
    generation_id = group.generation_id

    def committed(error: ErrorCode, at_ms: int) -> GroupResult | None:
        # The group may have changed while the assignment was being written.
        if group.state is not _S.COMPLETING_REBALANCE or group.generation_id != generation_id:
            return None
        if error is ErrorCode.NONE:
            replies = set_and_propagate_assignments(env, group, assignments)
            group.transition_to(_S.STABLE, at_ms)
            env.note_completed_rebalance()
            return nothing().after(replies)
        replies = reset_and_propagate_assignments(env, group, error)
        return maybe_prepare_rebalance_or_complete_join(env, group, at_ms).after(replies)

    return CoordinatorResult(
        (group_metadata_record(group, assignments),), None, replay=False, committed=committed
    )


def _validate(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is _S.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _refuse(caller: Caller, error: ErrorCode) -> GroupResult:
    return replied(caller, SyncGroupResponse(error_code=error))
