"""Applies the records of consumer groups to the groups of a shard. Follows the replay of Kafka's GroupMetadataManager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer.consumer_group import ConsumerGroup, ResolvedRegularExpression, Subscribers
from kafkacompat.group.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ClassicMemberMetadata,
    ConsumerGroupMember,
)
from kafkacompat.group.consumer.records import ConsumerGroupRecord, owned_partitions, state_of
from kafkacompat.group.modern_records import shared_names

if TYPE_CHECKING:
    from kafkacompat.group.group import Group


def replay_consumer_record(
    groups: dict[str, Group], subscribers: Subscribers, record: ConsumerGroupRecord
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    group = groups.get(record.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return
        is_simple = (
            isinstance(group, ClassicGroup) and group.protocol_type is None and group.generation_id == 0
        )
        if group is not None and not is_simple:
            raise LoadFailure(f"group {record.group_id} is {group.kind.value} and consumer at once")
        group = groups[record.group_id] = ConsumerGroup(record.group_id, subscribers)
    _REPLAYS[record.key.API_KEY](group, record.key, record.value)
    if record.key.API_KEY == _GROUP_METADATA and record.value is None:
        group.forget()
        del groups[record.group_id]


_GROUP_METADATA = 3


def _group_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.set_group_epoch(value.epoch, value.metadata_hash)
    elif group.members or group.targets or group.assignment_epoch != -1:
        raise LoadFailure(f"the tombstone of group {group.group_id} comes before those of its members")


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_subscription_metadata_record = value is not None


def _member_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is None:
        if old is not None:
            if old.member_epoch != LEAVE_GROUP_MEMBER_EPOCH or key.member_id in group.targets:
                raise LoadFailure(
                    f"the tombstone of member {key.member_id} of group {group.group_id} comes before those of its "
                    "assignments"
                )
            group.remove_member(key.member_id)
        return
    classic = value.classic_member_metadata
    group.update_member(
        replace(
            old or ConsumerGroupMember(key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=shared_names(group.members, old, frozenset(value.subscribed_topic_names)),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMemberMetadata(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )
    )


def _target_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif group.targets:
        raise LoadFailure(
            f"the tombstone of group {group.group_id}'s assignment comes before those of its members"
        )
    else:
        group.set_assignment_epoch(-1, 0)


def _target_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {
            topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
        }


def _current_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is not None:
        group.update_member(
            replace(
                old or ConsumerGroupMember(key.member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=state_of(value),
                assigned=owned_partitions(value.assigned_partitions, value.member_epoch),
                pending_revocation=owned_partitions(value.partitions_pending_revocation, value.member_epoch),
            )
        )
    elif old is not None:
        group.update_member(
            replace(
                old,
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                assigned={},
                pending_revocation={},
            )
        )


def _regular_expression(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.set_resolved(
        key.regular_expression,
        None
        if value is None
        else ResolvedRegularExpression(frozenset(value.topics), value.version, value.timestamp),
    )


_REPLAYS: dict[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    _GROUP_METADATA: _group_metadata,
    4: _partition_metadata,
    5: _member_metadata,
    6: _target_metadata,
    7: _target_member,
    8: _current_assignment,
    16: _regular_expression,
}
