"""Heartbeat on a classic group.

It extends the member's session, and tells the member to rejoin if the group rebalances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.classic.classic_group import ClassicGroupState
from kafkacompat.group.classic.rebalance import reschedule_heartbeat
from kafkacompat.group.environment import Environment
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest

_S = ClassicGroupState


def heartbeat(env: Environment, request: HeartbeatRequest) -> ErrorCode:
    group = env.classic_group(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is _S.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is _S.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    reschedule_heartbeat(env, group, group.members[request.member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _S.PREPARING_REBALANCE else ErrorCode.NONE
