"""ShareGroupHeartbeat (KIP-932): members join, report, and leave a share group by it.

A heartbeat updates the member, then the target assignment if the group epoch is ahead of it, then the member's own
assignment, which is the target at once: partitions are shared, so nobody waits for another to give one up. Partitions
without a state are named in the group's record, and the caller has them initialized. Follows Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.environment import METADATA_REFRESH_INTERVAL_MS, Environment
from kafkacompat.group.metadata_hash import metadata_hash
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from kafkacompat.group.records import GroupRecord
from kafkacompat.group.share.initialization import (
    Initialization,
    begin_initialization,
    since_now,
)
from kafkacompat.group.share.member import Partitions, ShareGroupMember
from kafkacompat.group.share.records import current_assignment_record, epoch_record, member_record
from kafkacompat.group.share.sessions import fence_member, schedule_session_timeout
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.target_assignment import ShareTarget, maybe_update_target
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


class Beat(NamedTuple):
    response: ShareGroupHeartbeatResponse
    initialization: Initialization | None
    """The states to make now that the records are committed."""


Result = CoordinatorResult[GroupRecord, Beat]


def share_group_heartbeat(
    env: Environment, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now_ms: int
) -> Result:
    """Raises Refused. `client_host` has the leading slash of Java's InetAddress."""
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return _leave(env, request)
    return _heartbeat(env, request, client_id, client_host, now_ms)


def _heartbeat(
    env: Environment, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str, now_ms: int
) -> Result:
    records: list[GroupRecord] = []
    group_id, joins = request.group_id, request.member_epoch == 0
    group = share_group_for(env, group_id, creates=joins)
    _throw_if_full(env, group, request.member_id)
    known = group.members.get(request.member_id)
    member = known or (ShareGroupMember(request.member_id) if joins else group.member(request.member_id))
    _check_epoch(member, request.member_epoch)
    told = _told_of(request, client_id, client_host, member)
    env.throw_if_no_room(group.growth(told))
    if told != member:
        records.append(member_record(group_id, told))
    bump = told.subscribed_topic_names != member.subscribed_topic_names
    if not bump and group.assignment_epoch >= group.group_epoch:
        bump = group.is_assignment_pending()
    group_epoch, counts = group.group_epoch, group.topic_counts(known, told)
    if bump or group.has_metadata_expired(now_ms):
        found_hash = metadata_hash(env, counts)
        if bump or found_hash != group.metadata_hash:
            bump = True
            group_epoch += 1
            records.append(epoch_record(group_id, group_epoch, found_hash))
            env.note_share_rebalance()
        group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, group_epoch)
    size = len(group.members) + (known is None)
    homogeneous = all(count == size for count in counts.values())
    target = maybe_update_target(env, group, group_epoch, told, homogeneous, records, now_ms)
    updated = _reconciled(env, told, target, bump)
    if updated != told:
        records.append(current_assignment_record(group_id, updated))
    schedule_session_timeout(env, group_id, member.member_id)
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=env.share_setting(group_id, "heartbeat_interval_ms"),
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


def share_group_for(env: Environment, group_id: str, creates: bool) -> ShareGroup:
    """The group, or one that comes to be with these records. No group of another kind becomes one. Raises Refused."""
    group = env.groups.get(group_id)
    if group is None:
        if creates:
            return ShareGroup(group_id, {})
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if group.is_dead():
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return group


def _throw_if_full(env: Environment, group: ShareGroup, member_id: str) -> None:
    limit = env.settings.share.max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {limit} members.",
        )


def _check_epoch(member: ShareGroupMember, received: int) -> None:
    """The previous epoch is accepted, because the answer with the new one may have been lost."""
    known, previous = member.member_epoch, member.previous_member_epoch
    if received in (0, known, previous if previous < known else known):
        return
    if received > known:
        reason = f"a greater member epoch ({received}) than the one known by the group coordinator ({known})."
    else:
        reason = (
            f"a smaller member epoch ({received}) than the one known by the group coordinator ({known}), and it does not "
            f"match the previous member epoch ({previous})."
        )
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has {reason} The member must abandon all its partitions and rejoin.",
    )


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
    group = env.groups.get(request.group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
    response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return fence_member(env, group, group.member(request.member_id)).answering(Beat(response, None))
