"""ShareGroupHeartbeat (KIP-932): members join, report, and leave a share group by it.

A heartbeat updates the member, then the target assignment if the group epoch is ahead of it, then the member's own
assignment, which is the target at once: partitions are shared, so nobody waits for another to give one up. Partitions
without a state are named in the group's record, and the caller has them initialized. Follows Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.group.consumer.consumer_group_member import MemberState
from kafkacompat.group.environment import Environment, GroupResult
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    cancel_fencing,
    fenced_epoch,
    group_of_kind,
    is_blank,
    maybe_bump_group_epoch,
    metadata_hash,
    schedule_session_timeout,
    session_timeout_ms,
    take_up,
    throw_if_full,
)
from kafkacompat.group.records import (
    GroupRecord,
    share_current_assignment_record,
    share_epoch_record,
    share_member_record,
    share_member_tombstones,
    share_target_epoch_record,
    share_target_record,
)
from kafkacompat.group.share.share_group import NO_PARTITIONS, ShareGroup
from kafkacompat.group.share.share_group_member import Partitions, ShareGroupMember
from kafkacompat.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec, assign
from kafkacompat.group.share.state_partitions import NO_STATES
from kafkacompat.group.share.states import Initialization, begin_initialization, share_group_for, since_now
from kafkacompat.group.target_assignment import (
    AT_ONCE_UNITS,
    Target,
    TargetRecords,
    assign_beside,
    assigned_at_once,
    is_assignment_due,
)
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def validate_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises OperationRefused INVALID_REQUEST."""
    _refuse_if(is_blank(request.member_id), "MemberId can't be empty.")
    _refuse_if(is_blank(request.group_id), "GroupId can't be empty.")
    _refuse_if(is_blank(request.rack_id), "RackId can't be empty.")
    if request.member_epoch == 0:
        _refuse_if(not request.subscribed_topic_names, "SubscribedTopicNames must be set in first request.")
    else:
        _refuse_if(request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH, "MemberEpoch is invalid.")


def _refuse_if(is_bad: bool, message: str) -> None:
    if is_bad:
        raise OperationRefused(ErrorCode.INVALID_REQUEST, message)


# --- fencing


def fence_member(env: Environment, group: ShareGroup, member: ShareGroupMember) -> GroupResult:
    group_id = group.group_id
    found_hash = metadata_hash(env, group.topic_counts(member, None))
    cancel_fencing(env, "session", group_id, member.member_id)
    group_epoch = group.group_epoch + 1
    records = [
        *share_member_tombstones(group_id, member.member_id),
        share_epoch_record(group_id, group_epoch, found_hash),
    ]
    if len(group.members) == 1:
        # Nothing is left to assign, so the assignment of an empty group is that of its epoch.
        records.append(share_target_epoch_record(group_id, group_epoch, 0))
    return CoordinatorResult(tuple(records), None, refused=lambda: take_up(env, group, (member,)))


# --- the target assignment


FIRST_AT_ONCE_UNITS = 5_000
"""Like AT_ONCE_UNITS, for the first assignment, which a member then gets as the answer to its joining."""


ShareTarget = Target[Partitions]


def maybe_update_target(
    env: Environment,
    group: ShareGroup,
    group_epoch: int,
    member: ShareGroupMember,
    homogeneous: bool,
    records: list[GroupRecord],
    now_ms: int,
) -> ShareTarget:
    """Add the records of a new target assignment if the group epoch is ahead of it. Return the member's target."""
    member_id = member.member_id
    last = Target(group.assignment_epoch, group.targets.get(member_id, NO_PARTITIONS))
    if not is_assignment_due(env, group, group_epoch, now_ms):
        return last
    spec = _spec(env, group, member, homogeneous)
    shares = max(len(spec.members), sum(map(len, spec.assignable.values())))
    if len(spec.members) + shares > (AT_ONCE_UNITS if group.targets else FIRST_AT_ONCE_UNITS):
        assign_beside(_RECORDS, env, group, group_epoch, assign(spec), None, member_id)
        return last
    assigned = at_once(assign(spec))
    return assigned_at_once(_RECORDS, group, group_epoch, assigned, member_id, records, now_ms)


_RECORDS: TargetRecords[Partitions] = TargetRecords(
    ShareGroup, share_target_record, share_target_epoch_record, NO_PARTITIONS
)


def _spec(env: Environment, group: ShareGroup, member: ShareGroupMember, homogeneous: bool) -> ShareGroupSpec:
    # Members with equal subscriptions share one set of ids.
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    assignable: dict[Uuid, list[int]] = {}
    has_state = (NO_STATES if group.states is None else group.states).assignable()
    specs = {}
    for each in {**group.members, member.member_id: member}.values():
        names = each.subscribed_topic_names
        topic_ids = ids.get(names)
        if topic_ids is None:
            known = [topic for name in names if (topic := env.topics.by_name.get(name)) is not None]
            for topic in known:
                if topic.id not in assignable:
                    count = len(topic.partitions)
                    having = has_state.get(topic.id, ())
                    assignable[topic.id] = sorted(index for index in having if index < count)
            topic_ids = ids[names] = frozenset([topic.id for topic in known])
        specs[each.member_id] = ShareMemberSpec(topic_ids, group.targets.get(each.member_id, NO_PARTITIONS))
    return ShareGroupSpec(specs, assignable, homogeneous)


# --- heartbeats


class Beat(NamedTuple):
    response: ShareGroupHeartbeatResponse
    initialization: Initialization | None
    """The states to make now that the records are committed."""


Result = CoordinatorResult[GroupRecord, Beat]


def share_group_heartbeat(
    env: Environment, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now_ms: int
) -> Result:
    """Raises OperationRefused. `client_host` has the leading slash of Java's InetAddress."""
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return _leave(env, request)
    return _heartbeat(env, request, client_id, client_host, now_ms)


def _heartbeat(
    env: Environment, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now_ms: int
) -> Result:
    records: list[GroupRecord] = []
    group_id, joins = request.group_id, request.member_epoch == 0
    group = share_group_for(env, group_id, creates=joins)
    throw_if_full(group, env.settings.share.max_size, request.member_id)
    known = group.members.get(request.member_id)
    member = known or (ShareGroupMember(request.member_id) if joins else group.member(request.member_id))
    _check_epoch(group, member, request.member_epoch)
    told = _told_of(request, client_id, client_host, member)
    env.throw_if_no_room(group.growth(told))
    if told != member:
        records.append(share_member_record(group_id, told))
    bump = told.subscribed_topic_names != member.subscribed_topic_names
    if not bump and group.assignment_epoch >= group.group_epoch:
        bump = group.is_assignment_pending()
    group_epoch, counts = group.group_epoch, group.topic_counts(known, told)
    if bump or group.has_metadata_expired(now_ms):
        rebalanced = env.meters.share_rebalanced
        group_epoch, bump = maybe_bump_group_epoch(
            env, group, bump, counts, share_epoch_record, rebalanced, records, now_ms
        )
    size = len(group.members) + (known is None)
    homogeneous = all(count == size for count in counts.values())
    target = maybe_update_target(env, group, group_epoch, told, homogeneous, records, now_ms)
    updated = _reconciled(env, told, target, bump)
    if updated != told:
        records.append(share_current_assignment_record(group_id, updated))
    schedule_session_timeout(env, group_id, member.member_id, session_timeout_ms(env, group))
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=env.configs.get_int(group_id, "share.heartbeat.interval.ms"),
    )
    # A member tells its topics when it joins and after an error, and then needs its whole assignment back.
    if joins or request.subscribed_topic_names is not None or updated.assigned != member.assigned:
        response.assignment = _told_assignment(updated.assigned)
    begun = begin_initialization(env, group, counts, group_epoch, records, now_ms)
    return CoordinatorResult(
        tuple(records),
        Beat(response, begun),
        committed=None if begun is None else since_now(env, group_id),
    )


def _check_epoch(group: ShareGroup, member: ShareGroupMember, received: int) -> None:
    """The previous epoch is accepted, because the answer with the new one may have been lost."""
    known, previous = member.member_epoch, member.previous_member_epoch
    if received in (0, known, previous if previous < known else known):
        return
    detail = f", and it does not match the previous member epoch ({previous})"
    raise fenced_epoch(group, received, known, detail)


def _told_of(
    request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, member: ShareGroupMember
) -> ShareGroupMember:
    """The member with what the request tells. None means unchanged."""
    names = member.subscribed_topic_names
    if request.subscribed_topic_names is not None:
        told = frozenset(request.subscribed_topic_names)
        names = names if told == names else told
    rack_id = member.rack_id if request.rack_id is None else request.rack_id
    if (rack_id, client_id, client_host) == (member.rack_id, member.client_id, member.client_host) and (
        names is member.subscribed_topic_names
    ):
        return member
    return replace(
        member,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=names,
    )


def _reconciled(
    env: Environment, member: ShareGroupMember, target: ShareTarget, has_changed: bool
) -> ShareGroupMember:
    """The member with its target, of which it gets the topics that it subscribes to. `has_changed`: also if the target is
    not a new one."""
    if not has_changed and member.is_reconciled_to(target.epoch):
        return member
    names, by_id = member.subscribed_topic_names, env.topics.by_id
    assigned = {
        topic_id: partitions
        for topic_id, partitions in target.assignment.items()
        if (topic := by_id.get(topic_id)) is not None and topic.name in names
    }
    if target.epoch == member.member_epoch:
        return replace(member, assigned=assigned)
    return replace(
        member,
        member_epoch=target.epoch,
        previous_member_epoch=member.member_epoch,
        state=MemberState.STABLE,
        assigned=assigned,
    )


def _told_assignment(assigned: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


# --- leaving


def _leave(env: Environment, request: ShareGroupHeartbeatRequest) -> Result:
    group = group_of_kind(env, request.group_id, ShareGroup)
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return fence_member(env, group, group.member(request.member_id)).answering(Beat(response, None))
