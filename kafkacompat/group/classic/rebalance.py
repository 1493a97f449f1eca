"""How a classic group moves from one generation to the next, and the timers for it.

It prepares a rebalance, completes the join, hands out assignments, removes members whose session has ended, and
answers all members when the group ends. A timer refers to its group object, which may be dead by then. Follows KIP-62
(rebalance timeout), KIP-134 (initial delay), KIP-345 (static members stay), KIP-394 (ids first).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.classic.classic_group import (
    EMPTY_ASSIGNMENT,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    group_metadata_record,
)
from kafkacompat.group.environment import (
    Environment,
    GroupResult,
    heartbeat_key,
    join_key,
    nothing,
    sync_key,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.coordinator.core import Reply

_S = ClassicGroupState


def maybe_prepare_rebalance_or_complete_join(
    env: Environment, group: ClassicGroup, now_ms: int
) -> GroupResult:
    if group.can_rebalance():
        return prepare_rebalance(env, group, now_ms)
    return maybe_complete_join_phase(env, group, now_ms)


def prepare_rebalance(env: Environment, group: ClassicGroup, now_ms: int) -> GroupResult:
    """Ask all members to rejoin. An empty group first waits for more members (group.initial.rebalance.delay.ms)."""
    replies: Sequence[Reply] = ()
    if group.state is _S.COMPLETING_REBALANCE:
        replies = reset_and_propagate_assignments(env, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    env.timers.cancel(sync_key(group))
    initial = group.state is _S.EMPTY
    if initial:
        delay_ms = env.settings.initial_rebalance_delay_ms
        _schedule_initial(env, group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
    group.transition_to(_S.PREPARING_REBALANCE, now_ms)
    if not initial and group.has_all_members_joined():
        return complete_classic_group_join(env, group, now_ms).after(replies)
    if not initial:
        _schedule_join(env, group)
    return nothing().after(replies)


def maybe_complete_join_phase(env: Environment, group: ClassicGroup, now_ms: int) -> GroupResult:
    """Complete the join if all members have joined and no initial delay is running."""
    if (
        group.state is _S.PREPARING_REBALANCE
        and group.previous_state is not _S.EMPTY
        and group.has_all_members_joined()
    ):
        return complete_classic_group_join(env, group, now_ms)
    return nothing()


def complete_classic_group_join(env: Environment, group: ClassicGroup, now_ms: int) -> GroupResult:
    """Start the next generation with the members that have joined. Static members stay until their session ends."""
    if group.state is _S.DEAD:
        return nothing()
    env.timers.cancel(join_key(group))
    # Remove the newest members first, so that the leadership does not pass through all removed members.
    for member in reversed(list(group.members.values())):
        if member.awaiting_join is None and member.group_instance_id is None:
            group.remove(member.member_id)
            env.timers.cancel(heartbeat_key(group, member.member_id))
    if not group.maybe_elect_new_joined_leader() and group.members:
        # Only static members are left, and none has rejoined: wait for the end of their sessions.
        _schedule_join(env, group)
        return nothing()
    group.init_next_generation(now_ms)
    if group.state is _S.EMPTY:
        # A failed write does no harm, because the generation in the log has no live member.
        return CoordinatorResult((group_metadata_record(group, {}),), None, replay=False)
    replies: list[Reply] = []
    for member in group.members.values():
        replies += group.answer_join(member, join_response(group, member))
        reschedule_heartbeat(env, group, member)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    generation_id = group.generation_id
    env.timers.schedule(
        sync_key(group),
        group.rebalance_timeout_ms(),
        lambda at_ms: _expire_pending_sync(env, group, generation_id, at_ms),
    )
    return CoordinatorResult((), None, replies=replies)


def join_response(group: ClassicGroup, member: ClassicGroupMember) -> JoinGroupResponse:
    """The current generation. Only the leader gets the list of members."""
    return JoinGroupResponse(
        members=current_members(group) if group.leader_id == member.member_id else [],
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        protocol_type=group.protocol_type,
        leader=group.leader_id or "",
    )


def current_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    name = group.protocol_name or ""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(name),
        )
        for member in group.members.values()
    ]


def join_refusal(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=error, protocol_name=None)


# --- assignments


def reset_and_propagate_assignments(
    env: Environment, group: ClassicGroup, error: ErrorCode
) -> Sequence[Reply]:
    """Revoke all assignments and answer the parked syncs."""
    for member in group.members.values():
        group.assign(member, EMPTY_ASSIGNMENT)
    return _propagate_assignments(env, group, error)


def set_and_propagate_assignments(
    env: Environment, group: ClassicGroup, assignments: dict[str, bytes]
) -> Sequence[Reply]:
    for member in group.members.values():
        group.assign(member, assignments.get(member.member_id, EMPTY_ASSIGNMENT))
    return _propagate_assignments(env, group, ErrorCode.NONE)


def _propagate_assignments(env: Environment, group: ClassicGroup, error: ErrorCode) -> Sequence[Reply]:
    succeeded = error is ErrorCode.NONE
    replies: list[Reply] = []
    for member in group.members.values():
        if member.awaiting_sync is None:
            continue
        replies += member.answer_sync(
            SyncGroupResponse(
                protocol_type=group.protocol_type if succeeded else None,
                protocol_name=group.protocol_name if succeeded else None,
                assignment=member.assignment,
                error_code=error,
            )
        )
        # The end of a session is ignored while the request is parked, so the session must start again now.
        reschedule_heartbeat(env, group, member)
    return replies


# --- sessions


def reschedule_heartbeat(
    env: Environment, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None
) -> None:
    member_id = member.member_id
    env.timers.schedule(
        heartbeat_key(group, member_id),
        member.session_timeout_ms if timeout_ms is None else timeout_ms,
        lambda at_ms: expire_member_heartbeat(env, group, member_id, at_ms),
    )


def expire_member_heartbeat(
    env: Environment, group: ClassicGroup, member_id: str, now_ms: int
) -> GroupResult:
    """A session has ended. A member with a parked request stays, unless it is new."""
    if group.state is _S.DEAD:
        return nothing()
    if member_id in group.pending_join:
        group.remove(member_id)
        return _complete_join_if_all_joined(env, group, now_ms)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat():
        return nothing()
    replies = remove_member(env, group, member)
    if group.state in (_S.STABLE, _S.COMPLETING_REBALANCE):
        return prepare_rebalance(env, group, now_ms).after(replies)
    return _complete_join_if_all_joined(env, group, now_ms).after(replies)


def remove_member(env: Environment, group: ClassicGroup, member: ClassicGroupMember) -> Sequence[Reply]:
    """Remove a member without a rebalance. Its parked requests get UNKNOWN_MEMBER_ID, so that it rejoins."""
    cancel_heartbeat(env, group, member.member_id)
    replies = refuse_parked(group, member, "", ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member.member_id)
    return replies


def refuse_parked(
    group: ClassicGroup, member: ClassicGroupMember, member_id: str, error: ErrorCode
) -> Sequence[Reply]:
    """Answer the parked requests of a member. `member_id` is told to one that joins."""
    if member.awaiting_join is None and member.awaiting_sync is None:
        return ()
    return (
        *group.answer_join(member, join_refusal(member_id, error)),
        *member.answer_sync(SyncGroupResponse(error_code=error)),
    )


def refuse_all_parked(group: ClassicGroup, error: ErrorCode) -> Sequence[Reply]:
    """Answer the parked requests of all members."""
    return [
        reply
        for member in group.members.values()
        for reply in refuse_parked(group, member, member.member_id, error)
    ]


def end_group(env: Environment, group: ClassicGroup, error: ErrorCode, now_ms: int) -> Sequence[Reply]:
    """The group is no longer on this broker: answer all its parked requests and cancel its timers."""
    group.transition_to(_S.DEAD, now_ms)
    replies = refuse_all_parked(group, error)
    cancel_timers(env, group)
    return replies


def cancel_timers(env: Environment, group: ClassicGroup) -> None:
    for member_id in group.members:
        cancel_heartbeat(env, group, member_id)
    cancel_rebalance_timers(env, group)


def cancel_heartbeat(env: Environment, group: ClassicGroup, member_id: str) -> None:
    env.timers.cancel(heartbeat_key(group, member_id))


def cancel_rebalance_timers(env: Environment, group: ClassicGroup) -> None:
    """All timers but those of the members."""
    for member_id in group.pending_join:
        cancel_heartbeat(env, group, member_id)
    env.timers.cancel(join_key(group))
    env.timers.cancel(sync_key(group))


def _complete_join_if_all_joined(env: Environment, group: ClassicGroup, now_ms: int) -> GroupResult:
    if group.state is _S.PREPARING_REBALANCE and group.has_all_members_joined():
        return complete_classic_group_join(env, group, now_ms)
    return nothing()


# --- timers of a rebalance


def _schedule_join(env: Environment, group: ClassicGroup) -> None:
    env.timers.schedule(
        join_key(group),
        group.rebalance_timeout_ms(),
        lambda at_ms: complete_classic_group_join(env, group, at_ms),
    )


def _schedule_initial(env: Environment, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    env.timers.schedule(
        join_key(group),
        delay_ms,
        lambda at_ms: _try_complete_initial_rebalance_else_schedule(
            env, group, delay_ms, remaining_ms, at_ms
        ),
    )


def _try_complete_initial_rebalance_else_schedule(
    env: Environment, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int
) -> GroupResult:
    if group.state is _S.DEAD:
        return nothing()
    if group.new_member_added and remaining_ms:
        group.new_member_added = False
        next_delay_ms = min(env.settings.initial_rebalance_delay_ms, remaining_ms)
        _schedule_initial(env, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        return nothing()
    return complete_classic_group_join(env, group, now_ms)


def _expire_pending_sync(
    env: Environment, group: ClassicGroup, generation_id: int, now_ms: int
) -> GroupResult:
    if (
        group.generation_id != generation_id
        or group.state not in (_S.COMPLETING_REBALANCE, _S.STABLE)
        or not group.pending_sync
    ):
        return nothing()
    for member_id in sorted(group.pending_sync):
        group.remove(member_id)
        env.timers.cancel(heartbeat_key(group, member_id))
    return prepare_rebalance(env, group, now_ms)
