"""What a heartbeat and the classic protocol's requests do alike to a consumer group: find the member that asks, note
what is new about it, bring the group's epoch up to date, move the member towards its target, and remove members that
leave or are fenced.

Each step adds records. Nothing changes before the log has them. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.group.consumer.consumer_group import (
    ConsumerGroup,
    SubscribedTopics,
    cancel_timers,
)
from kafkacompat.group.consumer.consumer_group_member import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupMember,
    OwnedPartitions,
)
from kafkacompat.group.consumer.conversion import (
    CONVERTED_AT_ONCE,
    downgrade_later,
    downgraded,
    may_downgrade_without,
)
from kafkacompat.group.consumer.current_assignment_builder import Reconciliation
from kafkacompat.group.consumer.target_assignment_builder import (
    Change,
    ConsumerTarget,
    is_homogeneous,
    subscribed_counts,
)
from kafkacompat.group.environment import Environment, GroupResult
from kafkacompat.group.modern_group import (
    fenced_epoch,
    maybe_bump_group_epoch,
    metadata_hash,
    schedule_rebalance_timeout,
    static_member_or_refused,
    take_up,
    unreleased_instance,
)
from kafkacompat.group.records import (
    GroupRecord,
    consumer_current_assignment_record,
    consumer_epoch_record,
    consumer_member_record,
    consumer_member_tombstones,
    consumer_target_epoch_record,
    consumer_target_record,
    regular_expression_tombstone,
    subscription_metadata_tombstone,
)

if TYPE_CHECKING:
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest


def static_member_for(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    joins: bool,
    records: list[GroupRecord],
    epoch_of: ConsumerGroupHeartbeatRequest | None,
) -> ConsumerGroupMember:
    """The member of an instance id. One that joins takes the place of the former one. `epoch_of` is None for a classic
    member. Raises OperationRefused."""
    existing = group.static_member(instance_id)
    if not joins:
        found = static_member_or_refused(group, member_id, instance_id)
        if epoch_of is not None:
            check_epoch(group, found, epoch_of)
        return found
    if existing is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    is_released = existing.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    if epoch_of is not None and not existing.uses_classic_protocol and not is_released:
        raise unreleased_instance(member_id, instance_id, existing.member_id)
    new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += consumer_member_tombstones(group.group_id, existing.member_id)
    records.append(consumer_member_record(group.group_id, new))
    records.append(
        consumer_target_record(group.group_id, member_id, group.targets.get(existing.member_id, {}))
    )
    records.append(consumer_current_assignment_record(group.group_id, new))
    return new


def check_epoch(
    group: ConsumerGroup, member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest
) -> None:
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
    raise fenced_epoch(group, received, known)


def _is_subset(owned: Sequence[Any] | None, assigned: OwnedPartitions) -> bool:
    return owned is not None and all(
        not topic.partitions
        or (topic.topic_id in assigned and assigned[topic.topic_id].keys() >= set(topic.partitions))
        for topic in owned
    )


def note_member(
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    updated: ConsumerGroupMember,
    records: list[GroupRecord],
) -> bool:
    """Add the record of a member that is new or has changed. Return whether it names other topics now."""
    if updated is member or updated == member:
        return False
    records.append(consumer_member_record(group.group_id, updated))
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
    rebalanced = env.meters.consumer_rebalanced
    group_epoch, _ = maybe_bump_group_epoch(
        env, group, bump, counts, consumer_epoch_record, rebalanced, records, now_ms
    )
    if group.has_subscription_metadata_record:
        records.append(subscription_metadata_tombstone(group.group_id))
    return group_epoch, is_homogeneous(group, change, counts)


def reconcile(
    env: Environment,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    target: ConsumerTarget,
    has_subscription_changed: bool,
    owned: Sequence[Any] | None,
    records: list[GroupRecord],
) -> ConsumerGroupMember:
    """The member after its next step towards the target. Raises OperationRefused."""
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
    records.append(consumer_current_assignment_record(group.group_id, reconciled))
    if not reconciled.uses_classic_protocol:
        schedule_rebalance_timeout(env, group.group_id, reconciled)
    return reconciled


def fence_members(
    env: Environment, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], now_ms: int
) -> GroupResult:
    """Remove members. If only classic members remain, the group becomes a classic one, unless that is impossible."""
    if not members:
        return CoordinatorResult((), None)
    gone = {member.member_id for member in members}
    if may_downgrade_without(env, group, members):
        if len(group.members) - len(gone) > CONVERTED_AT_ONCE:
            downgrade_later(env, group, now_ms)
        else:
            try:
                return downgraded(env, group, gone, now_ms)
            except OperationRefused:
                pass  # the members go all the same: their partitions must not stay with them
    group_id = group.group_id
    records: list[GroupRecord] = []
    for member in members:
        records += consumer_member_tombstones(group_id, member.member_id)
    topics = SubscribedTopics(group)
    subscribers = dict(group.regexes)
    for member in members:
        topics.rename(member.subscribed_topic_names, frozenset())
        if member.regex is not None:
            subscribers[member.regex] -= 1
    for regex, count in subscribers.items():
        if count == 0:
            records.append(regular_expression_tombstone(group_id, regex))
            topics.match(regex)
    found_hash = metadata_hash(env, topics.counts())
    group_epoch = group.group_epoch + 1
    records.append(consumer_epoch_record(group_id, group_epoch, found_hash))
    if len(group.members) == len(gone):
        # Nothing is left to assign, so the assignment of an empty group is that of its epoch.
        records.append(consumer_target_epoch_record(group_id, group_epoch, 0))
    # Members that stay, because there was no memory until here or the log takes no records, must not stay for ever.
    for member in members:
        cancel_timers(env, group_id, member.member_id)
    return CoordinatorResult(tuple(records), None, refused=lambda: take_up(env, group, members))
