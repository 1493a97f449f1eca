"""ConsumerGroupHeartbeat (KIP-848): members join, report, and leave a consumer group by it.

A heartbeat updates the member, then the target assignment if the group epoch is ahead of it, then the member's own
assignment. Each step adds records, and nothing changes before the log has them. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.conversion import upgraded, validate_online_upgrade
from kafkacompat.group.consumer.current_assignment import Reconciliation
from kafkacompat.group.consumer.large_conversion import CONVERTED_AT_ONCE, upgraded_if_prepared
from kafkacompat.group.consumer.leaving import fence_members
from kafkacompat.group.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from kafkacompat.group.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    subscription_metadata_tombstone,
    target_record,
)
from kafkacompat.group.consumer.regular_expressions import (
    MayDescribe,
    RegexUpdate,
    maybe_update_regular_expressions,
)
from kafkacompat.group.consumer.sessions import (
    cancel_rebalance_timeout,
    schedule_rebalance_timeout,
    schedule_session_timeout,
)
from kafkacompat.group.consumer.target_assignment import (
    Change,
    Target,
    is_homogeneous,
    maybe_update_target,
    metadata_hash,
    subscribed_counts,
)
from kafkacompat.group.environment import METADATA_REFRESH_INTERVAL_MS, Environment
from kafkacompat.group.kinds import GroupKind
from kafkacompat.group.records import GroupRecord
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_response import (
    Assignment as ToldAssignment,
)
from kafkacompat.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

Result = CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    client_id: str
    client_host: str
    """With the leading slash of Java's InetAddress."""
    may_describe: MayDescribe | None = None
    """None if everybody may describe every topic."""


def consumer_group_heartbeat(
    env: Environment, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, now_ms: int
) -> Result:
    """Raises Refused."""
    if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
        return _leave(env, request, now_ms)
    return _heartbeat(env, request, caller, now_ms)


def _heartbeat(
    env: Environment, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, now_ms: int
) -> Result:
    records: list[GroupRecord] = []
    joins = request.member_epoch == 0
    group = _group_for(env, request.group_id, joins, records, now_ms)
    throw_if_full(env, group, request.member_id)
    member_id = request.member_id or env.new_uuid()
    if request.instance_id is None:
        member = group.members.get(member_id) or _new_or_refused(group, member_id, joins)
        _check_epoch(member, request)
    else:
        member = static_member_for(group, member_id, request.instance_id, joins, records, epoch_of=request)
    updated = _told_of(request, caller, member)
    names_changed = note_member(group, member, updated, records)
    regex = maybe_update_regular_expressions(
        env, group, member, updated, caller.may_describe, records, now_ms
    )
    change = Change(member, updated)
    group_epoch, homogeneous = maybe_update_epoch(
        env, group, change, names_changed or regex is RegexUpdate.UPDATED_AND_RESOLVED, records, now_ms
    )
    target = maybe_update_target(env, group, group_epoch, change, homogeneous, records, now_ms)
    has_changed = names_changed or regex is not RegexUpdate.NO_CHANGE
    updated = reconcile(env, group, updated, target, has_changed, request.topic_partitions, records)
    schedule_session_timeout(
        env, group.group_id, member_id, env.consumer_setting(group.group_id, "session_timeout_ms")
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=env.consumer_setting(group.group_id, "heartbeat_interval_ms"),
    )
    if joins or _is_full(request) or updated.assigned != member.assigned:
        response.assignment = _told_assignment(updated.assigned)
    return CoordinatorResult(tuple(records), response)


def _group_for(
    env: Environment, group_id: str, creates: bool, records: list[GroupRecord], now_ms: int
) -> ConsumerGroup:
    """The group, or one that comes to be with these records. An empty classic group is replaced, another is converted.
    Raises Refused."""
    group = env.groups.get(group_id)
    if group is not None and group.is_dead():
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if isinstance(group, ConsumerGroup):
        return group
    if not creates:
        reason = (
            f"Consumer group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group."
        )
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    classic = env.classic_group(group_id)
    if group is None:
        return ConsumerGroup(group_id, {})
    if classic is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic.is_empty():
        records += classic.tombstones()
        return ConsumerGroup(group_id, {})
    validate_online_upgrade(env, classic)
    if len(classic.members) > CONVERTED_AT_ONCE:
        return upgraded_if_prepared(env, classic, records, now_ms)
    return upgraded(env, classic, records)


def throw_if_full(env: Environment, group: ConsumerGroup, member_id: str) -> None:
    limit = env.settings.consumer.max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def _new_or_refused(group: ConsumerGroup, member_id: str, joins: bool) -> ConsumerGroupMember:
    return ConsumerGroupMember(member_id) if joins else group.member(member_id)


def static_member_for(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    joins: bool,
    records: list[GroupRecord],
    epoch_of: ConsumerGroupHeartbeatRequest | None,
) -> ConsumerGroupMember:
    """The member of an instance id. One that joins takes the place of the former one. `epoch_of` is None for a classic
    member. Raises Refused."""
    existing = group.static_member(instance_id)
    if not joins:
        if existing is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        throw_if_fenced(existing, member_id, instance_id)
        if epoch_of is not None:
            _check_epoch(existing, epoch_of)
        return existing
    if existing is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    is_released = existing.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    if epoch_of is not None and not existing.uses_classic_protocol and not is_released:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
            f"owned by {existing.member_id} member.",
        )
    new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_tombstones(group.group_id, existing.member_id)
    records.append(member_record(group.group_id, new))
    records.append(target_record(group.group_id, member_id, group.targets.get(existing.member_id, {})))
    records.append(current_assignment_record(group.group_id, new))
    return new


def throw_if_fenced(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """The answer with a new epoch may have been lost: the previous epoch is accepted from a member that has nothing but
    what it may have."""
    received, known = request.member_epoch, member.member_epoch
    if received in (0, known):
        return
    if (
        received < known
        and received == member.previous_member_epoch
        and _is_subset(request.topic_partitions, member.assigned)
    ):
        return
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if received > known else 'smaller'} member epoch ({received}) than "
        f"the one known by the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Sequence[Any] | None, assigned: OwnedPartitions) -> bool:
    return owned is not None and all(
        not topic.partitions
        or (topic.topic_id in assigned and assigned[topic.topic_id].keys() >= set(topic.partitions))
        for topic in owned
    )


def _told_of(
    request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, member: ConsumerGroupMember
) -> ConsumerGroupMember:
    """The member with what the request tells. None means unchanged."""
    tells_nothing = (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, member.instance_id)
    )
    if tells_nothing and (caller.client_id, caller.client_host, None) == (
        member.client_id,
        member.client_host,
        member.classic,
    ):
        return member
    names = member.subscribed_topic_names
    if request.subscribed_topic_names is not None:
        told = frozenset(request.subscribed_topic_names)
        names = names if told == names else told
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        subscribed_topic_names=names,
        subscribed_topic_regex=member.subscribed_topic_regex
        if request.subscribed_topic_regex is None
        else request.subscribed_topic_regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    return member if updated == member else updated


def note_member(
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    updated: ConsumerGroupMember,
    records: list[GroupRecord],
) -> bool:
    """Add the record of a member that is new or has changed. Return whether it names other topics now."""
    if updated is member or updated == member:
        return False
    records.append(member_record(group.group_id, updated))
    return updated.subscribed_topic_names != member.subscribed_topic_names


def maybe_update_epoch(
    env: Environment,
    group: ConsumerGroup,
    change: Change,
    bump: bool,
    records: list[GroupRecord],
    now_ms: int,
) -> tuple[int, bool]:
    """The group epoch, and whether all members subscribe to the same topics. The epoch is a new one if `bump`, or if the
    subscribed topics have changed since the last look."""
    if not bump and not group.has_metadata_expired(now_ms):
        needs_target = group.assignment_epoch < group.group_epoch
        return group.group_epoch, needs_target and is_homogeneous(group, None, subscribed_counts(group, None))
    counts = subscribed_counts(group, change)
    found_hash = metadata_hash(env, counts)
    group_epoch = group.group_epoch
    if bump or found_hash != group.metadata_hash:
        group_epoch += 1
        records.append(epoch_record(group.group_id, group_epoch, found_hash))
        env.note_rebalance()
    group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, group_epoch)
    if group.has_subscription_metadata_record:
        records.append(subscription_metadata_tombstone(group.group_id))
    return group_epoch, is_homogeneous(group, change, counts)


def reconcile(
    env: Environment,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    target: Target,
    has_subscription_changed: bool,
    owned: Sequence[Any] | None,
    records: list[GroupRecord],
) -> ConsumerGroupMember:
    """The member after its next step towards the target. Raises Refused."""
    if not has_subscription_changed and member.is_reconciled_to(target.epoch):
        return member
    by_id = env.topics.by_id
    names = group.topic_names_of(member)
    subscribed = {
        topic_id
        for topic_id in (*target.assignment, *member.assigned)
        if (topic := by_id.get(topic_id)) is not None and topic.name in names
    }
    reconciled = Reconciliation(
        target.epoch,
        target.assignment,
        subscribed,
        not has_subscription_changed or any(name in env.topics.by_name for name in names),
        has_subscription_changed,
        group.partition_epoch,
        owned,
    ).next_of(member)
    if reconciled == member:
        return member
    records.append(current_assignment_record(group.group_id, reconciled))
    if not reconciled.uses_classic_protocol:
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            schedule_rebalance_timeout(env, group.group_id, reconciled)
        else:
            cancel_rebalance_timeout(env, group.group_id, reconciled.member_id)
    return reconciled


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member sends everything when it joins and after an error, and then needs everything back."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _told_assignment(assigned: OwnedPartitions) -> ToldAssignment:
    return ToldAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


# --- leaving


def _leave(env: Environment, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Result:
    group = env.groups.get(request.group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if group.kind is not GroupKind.CONSUMER:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    assert isinstance(group, ConsumerGroup)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence_members(env, group, [group.member(request.member_id)], now_ms).answering(response)
    member = group.static_member(request.instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    throw_if_fenced(member, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return fence_members(env, group, [member], now_ms).answering(response)
    # The partitions stay with the instance, and its next member id has them from the beginning.
    left = replace(
        member,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        pending_revocation={},
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
    )
    return CoordinatorResult((current_assignment_record(group.group_id, left),), response)
