"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup on a classic group.

- The member and the group's state decide what a join does. Follows KIP-394 (ids are handed out first) and KIP-345
  (static members).
- SyncGroup parks the members that wait for the leader's assignment, writes the assignment, and hands it out.
- Heartbeat extends the member's session, and tells the member to rejoin if the group rebalances.
- LeaveGroup removes members, pending ids and, on an administrator's request, static members by instance id (KIP-345).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import ref

from kafkacompat.coordinator.core import Caller, CoordinatorResult
from kafkacompat.dataclass import dataclass
from kafkacompat.group.classic.classic_group import (
    EMPTY_ASSIGNMENT,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    Protocols,
    empty_group_record,
    group_metadata_record,
)
from kafkacompat.group.classic.rebalance import (
    current_members,
    end_group,
    expire_member_heartbeat,
    join_refusal,
    join_response,
    maybe_complete_join_phase,
    maybe_prepare_rebalance_or_complete_join,
    prepare_rebalance,
    refuse_parked,
    remove_member,
    reschedule_heartbeat,
    reset_and_propagate_assignments,
    set_and_propagate_assignments,
)
from kafkacompat.group.environment import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Environment,
    GroupResult,
    heartbeat_key,
    nothing,
    replied,
)
from kafkacompat.group.modern_group import ModernGroup
from kafkacompat.group.records import GroupRecord
from kafkacompat.group.sizes import (
    size_of_classic_member,
    size_of_group,
    size_of_pending_member,
    size_of_protocols,
)
from kafkacompat.memory import NO_CONNECTION
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from kafkacompat.coordinator.core import Reply
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.leave_group_request import MemberIdentity
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest


_S = ClassicGroupState


@dataclass(frozen=True, slots=True)
class JoinCaller:
    """The client of the request, its protocols and capabilities, and whom the reply goes to."""

    caller: Caller
    protocols: Protocols
    client_id: str
    client_host: str
    requires_known_member_id: bool
    """Whether a dynamic member first gets an id and must join again with it."""
    can_skip_assignment: bool
    connection_id: int = NO_CONNECTION
    may_describe: Callable[[list[str]], set[str]] | None = None
    """Of topics that match an expression of the group, those that the client may describe. None if it may describe
    all."""


def join(env: Environment, request: JoinGroupRequest, caller: JoinCaller, now_ms: int) -> GroupResult:
    """Every path answers the caller, now or when the group completes its join."""
    group = env.classic_group(request.group_id)
    unknown = request.member_id == ""
    if not env.memory.has_room(_growth(group, request, caller), caller.connection_id):
        # Java's client and librdkafka come back to the same coordinator later. They give up after
        # GROUP_MAX_SIZE_REACHED, and look for another coordinator after COORDINATOR_NOT_AVAILABLE.
        return _refuse(caller, request.member_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if group is None:
        if not unknown:
            return _refuse(caller, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return _join_new_group(env, request, caller, now_ms)
    if not _accept_joining_member(env, group, request.member_id):
        return _refuse_for_size(env, group, request, caller, now_ms)
    if unknown:
        return _join_new_member(env, group, request, caller, now_ms)
    return _join_existing_member(env, group, request, caller, now_ms)


def _growth(group: ClassicGroup | None, request: JoinGroupRequest, caller: JoinCaller) -> int:
    """How much more memory is held after this join than before it.

    An empty group counts for the connection that joins it, from then on. Only its growth is asked for here, so such
    groups may take a connection beyond its bound. They were counted before, so the node stays within its own.
    """
    member = None if group is None else group.members.get(request.member_id)
    if member is not None:
        return size_of_protocols(caller.protocols) - size_of_protocols(member.protocols)
    growth = 0
    if group is None or not group.members:  # the first member gives it its type
        growth = size_of_group(request.group_id, request.protocol_type)
        if group is not None:
            growth -= size_of_group(request.group_id, group.protocol_type)
    if not request.member_id and request.group_instance_id is None and caller.requires_known_member_id:
        return growth + size_of_pending_member(caller.client_id)
    instance_id = request.group_instance_id or ""
    names = (caller.client_id, caller.client_id, caller.client_host, instance_id, request.protocol_type)
    return growth + size_of_classic_member(names, caller.protocols)


def _join_new_group(
    env: Environment, request: JoinGroupRequest, caller: JoinCaller, now_ms: int
) -> GroupResult:
    """The group exists once the log has its first record, even if the wait for the replicas fails, because other
    members may have joined by then. It takes the place of an empty group of another kind.

    Replies wait for that record. A parked member is answered when the join completes.
    """
    group = ClassicGroup(
        request.group_id,
        current_state_timestamp_ms=now_ms,
        memory=env.memory,
        connection_id=caller.connection_id,
    )
    replaced = env.groups.get(group.group_id)
    env.groups[group.group_id] = group
    tombstones = () if replaced is None else replaced.tombstones()
    if isinstance(replaced, ModernGroup):
        replaced.unsubscribe_from_all()
    joined = _join_new_member(env, group, request, caller, now_ms)  # at most the initial delay starts

    def refused() -> None:
        if replaced is None:
            del env.groups[group.group_id]
        else:
            env.groups[group.group_id] = replaced
        if isinstance(replaced, ModernGroup):
            replaced.remember()
        group.transition_to(_S.DEAD, now_ms)

    def committed(error: ErrorCode, at_ms: int) -> GroupResult | None:
        if error is ErrorCode.NONE:
            return joined
        # A refused member never learns its id, so the group must not wait for it.
        replies: list[Reply] = []
        for each, message in joined.replies:
            replies.append((each, join_refusal("", error)))
            _forget(env, group, message.member_id)  # type: ignore[attr-defined]  # the response to a join
        for member in list(group.members.values()):
            if member.awaiting_join is caller.caller:
                replies += group.answer_join(member, join_refusal("", error))
                _forget(env, group, member.member_id)
        if group.state is _S.DEAD:
            replies += end_group(env, group, error, at_ms)
            return nothing().after(replies)
        return maybe_complete_join_phase(env, group, at_ms).after(replies)

    return CoordinatorResult(
        (*tombstones, empty_group_record(group.group_id, now_ms)),
        None,
        replay=False,
        refused=refused,
        committed=committed,
    )


def _forget(env: Environment, group: ClassicGroup, member_id: str) -> None:
    group.remove(member_id)
    env.timers.cancel(heartbeat_key(group, member_id))


def _accept_joining_member(env: Environment, group: ClassicGroup, member_id: str) -> bool:
    """Whether group.max.size has room. During a join the waiting members count, so the last ones to arrive are
    refused."""
    if group.state in (_S.EMPTY, _S.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is _S.PREPARING_REBALANCE:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < env.settings.max_size
    return member is not None or len(group.members) < env.settings.max_size


def _refuse_for_size(
    env: Environment, group: ClassicGroup, request: JoinGroupRequest, caller: JoinCaller, now_ms: int
) -> GroupResult:
    member = group.members.get(request.member_id)
    replies: Sequence[Reply] = ()
    if member is not None:
        replies = member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(request.member_id)
    return _refuse(caller, "", ErrorCode.GROUP_MAX_SIZE_REACHED).after(replies)


def _join_new_member(
    env: Environment, group: ClassicGroup, request: JoinGroupRequest, caller: JoinCaller, now_ms: int
) -> GroupResult:
    protocols = caller.protocols
    if group.state is _S.DEAD:
        return _refuse(caller, "", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group.supports_protocols(request.protocol_type, protocols):
        return _refuse(caller, "", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.group_instance_id is not None:
        member_id = env.member_id(request.group_instance_id)
        if request.group_instance_id in group.static_members:
            return _update_static_member_then_rebalance_or_complete_join(
                env, group, request, caller, member_id, now_ms
            )
        return _add_member_then_rebalance_or_complete_join(env, group, request, caller, member_id, now_ms)
    member_id = env.member_id(caller.client_id)
    if not caller.requires_known_member_id:
        return _add_member_then_rebalance_or_complete_join(env, group, request, caller, member_id, now_ms)
    of_group = ref(group)  # what is given up must not keep a group that is gone

    def give_up() -> None:
        """End the session now. A client that comes back nevertheless asks for another id, as after any session."""
        alive = of_group()
        if alive is not None:
            env.timers.reschedule(heartbeat_key(alive, member_id), 0)

    size = size_of_pending_member(caller.client_id)
    group.pending_join[member_id] = env.memory.hold_briefly(size, caller.connection_id, give_up)
    env.timers.schedule(
        heartbeat_key(group, member_id),
        request.session_timeout_ms,
        lambda at_ms: expire_member_heartbeat(env, group, member_id, at_ms),
    )
    return _refuse(caller, member_id, ErrorCode.MEMBER_ID_REQUIRED)


def _join_existing_member(
    env: Environment, group: ClassicGroup, request: JoinGroupRequest, caller: JoinCaller, now_ms: int
) -> GroupResult:
    member_id = request.member_id
    protocols = caller.protocols
    if group.state is _S.DEAD:
        return _refuse(caller, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group.supports_protocols(request.protocol_type, protocols):
        return _refuse(caller, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member_id in group.pending_join:
        if request.group_instance_id is not None:
            # Pending ids belong to dynamic members only. Kafka answers this contradiction in the same way.
            return _refuse(caller, member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        return _add_member_then_rebalance_or_complete_join(env, group, request, caller, member_id, now_ms)
    error = group.validate_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return _refuse(caller, member_id, error)
    member = group.members[member_id]
    if group.state is _S.EMPTY:
        return _refuse(caller, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    unchanged = member.protocols == protocols
    if group.state is _S.COMPLETING_REBALANCE and unchanged:
        # The first answer may have been lost.
        return replied(caller.caller, join_response(group, member))
    if group.state is _S.STABLE and unchanged and group.leader_id != member_id:
        return replied(caller.caller, join_response(group, member))
    # A leader that rejoins asks for a rebalance, because the input of its assignment may have changed outside the
    # group.
    return _update_member_then_rebalance_or_complete_join(env, group, member, request, caller, now_ms)


def _refuse(caller: JoinCaller, member_id: str, error: ErrorCode) -> GroupResult:
    return replied(caller.caller, join_refusal(member_id, error))


def _add_member_then_rebalance_or_complete_join(
    env: Environment,
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: JoinCaller,
    member_id: str,
    now_ms: int,
) -> GroupResult:
    member = ClassicGroupMember(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        caller.protocols,
        connection_id=caller.connection_id,
    )
    member.is_new = True
    if group.state is _S.PREPARING_REBALANCE and group.previous_state is _S.EMPTY:
        group.new_member_added = True
    group.add(member, caller.caller)
    reschedule_heartbeat(env, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    return maybe_prepare_rebalance_or_complete_join(env, group, now_ms)


def _update_member_then_rebalance_or_complete_join(
    env: Environment,
    group: ClassicGroup,
    member: ClassicGroupMember,
    request: JoinGroupRequest,
    caller: JoinCaller,
    now_ms: int,
) -> GroupResult:
    # A member may send the request again on a new connection while the first one is parked. The first one is then
    # answered with an error.
    replies: Sequence[Reply] = ()
    if member.awaiting_join is not None:
        replies = group.answer_join(member, join_refusal(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    group.update_member(
        member,
        caller.protocols,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        caller.caller,
        caller.connection_id,
    )
    return maybe_prepare_rebalance_or_complete_join(env, group, now_ms).after(replies)


def _update_static_member_then_rebalance_or_complete_join(
    env: Environment,
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: JoinCaller,
    new_member_id: str,
    now_ms: int,
) -> GroupResult:
    """A static member rejoins without its member id: it takes its former place, and the old member id is fenced."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    old = group.members[group.static_members[instance_id]]
    old_leader_id = group.leader_id
    replies = refuse_parked(group, old, old.member_id, ErrorCode.FENCED_INSTANCE_ID)
    env.timers.cancel(heartbeat_key(group, old.member_id))
    member = group.replace_static_member(instance_id, old.member_id, new_member_id)
    group.update_member(
        member,
        caller.protocols,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        caller.caller,
        caller.connection_id,
    )
    reschedule_heartbeat(env, group, member)
    if group.state is _S.COMPLETING_REBALANCE:
        # The leader may be assigning partitions to the old id.
        return prepare_rebalance(env, group, now_ms).after(replies)
    if group.state is not _S.STABLE:
        return maybe_complete_join_phase(env, group, now_ms).after(replies)
    if group.select_protocol() != group.protocol_name:
        return maybe_prepare_rebalance_or_complete_join(env, group, now_ms).after(replies)

    was_refused = False

    def refused() -> None:
        nonlocal was_refused
        was_refused = True
        _revert_replacement(env, group, member, old)

    def committed(error: ErrorCode, at_ms: int) -> GroupResult | None:
        if error is not ErrorCode.NONE:
            response = join_refusal("", error)
            response.generation_id = group.generation_id
            response.protocol_name = group.protocol_name
            response.protocol_type = group.protocol_type
            response.leader = old_leader_id or ""
            if was_refused:
                return replied(caller.caller, response)
            return nothing().after(group.answer_join(member, response))
        response = JoinGroupResponse(
            member_id=new_member_id,
            generation_id=group.generation_id,
            protocol_name=group.protocol_name,
            protocol_type=group.protocol_type,
        )
        if caller.can_skip_assignment:
            leads = group.leader_id == new_member_id
            response.members = current_members(group) if leads else []
            response.leader = group.leader_id or ""
            response.skip_assignment = leads
        else:
            # With the former leader's id in the answer, the client does not act as leader and assigns nothing.
            response.leader = old_leader_id or ""
        return nothing().after(group.answer_join(member, response))

    assignments = {each.member_id: each.assignment for each in group.members.values()}
    return CoordinatorResult(
        (group_metadata_record(group, assignments),),
        None,
        replay=False,
        refused=refused,
        committed=committed,
        replies=replies,
    )


def _revert_replacement(
    env: Environment, group: ClassicGroup, member: ClassicGroupMember, old: ClassicGroupMember
) -> None:
    """Restore the old id, because the log refused the new one."""
    assert member.group_instance_id is not None
    group.update_member(
        member, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms, None, old.connection_id
    )
    env.timers.cancel(heartbeat_key(group, member.member_id))
    restored = group.replace_static_member(member.group_instance_id, member.member_id, old.member_id)
    reschedule_heartbeat(env, group, restored)


# --- SyncGroup


def sync(env: Environment, request: SyncGroupRequest, caller: Caller) -> GroupResult:
    """Every path answers the caller, now or when the assignment is committed or the group rebalances again."""
    group = env.classic_group(request.group_id)
    if group is None or group.state is _S.EMPTY:
        return _refuse_sync(caller, ErrorCode.UNKNOWN_MEMBER_ID)
    error = _validate(group, request)
    if error is not ErrorCode.NONE:
        return _refuse_sync(caller, error)
    if group.state is _S.PREPARING_REBALANCE:
        return _refuse_sync(caller, ErrorCode.REBALANCE_IN_PROGRESS)
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
            env.meters.rebalance_completed()
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


def _refuse_sync(caller: Caller, error: ErrorCode) -> GroupResult:
    return replied(caller, SyncGroupResponse(error_code=error))


# --- Heartbeat


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


# --- LeaveGroup


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
