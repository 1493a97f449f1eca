"""Applies the records of share groups to the groups of a shard. Follows the replay of Kafka's GroupMetadataManager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.modern_records import shared_names
from kafkacompat.group.share.member import LEAVE_GROUP_MEMBER_EPOCH, ShareGroupMember
from kafkacompat.group.share.records import (
    CURRENT_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    STATE_PARTITIONS,
    TARGET_MEMBER,
    TARGET_METADATA,
    ShareGroupRecord,
    partitions_of,
)
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import NamedPartitions, StatePartitions

if TYPE_CHECKING:
    from kafkacompat.group.group import Group


def replay_share_record(
    groups: dict[str, Group], subscribers: dict[str, set[str]], record: ShareGroupRecord
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    group = groups.get(record.group_id)
    if not isinstance(group, ShareGroup):
        if record.value is None:
            return
        is_simple = (
            isinstance(group, ClassicGroup) and group.protocol_type is None and group.generation_id == 0
        )
        if group is not None and not is_simple:
            raise LoadFailure(f"group {record.group_id} is {group.kind.value} and share at once")
        group = groups[record.group_id] = ShareGroup(record.group_id, subscribers)
    _REPLAYS[record.key.API_KEY](group, record.key, record.value)
    if record.key.API_KEY == GROUP_METADATA and record.value is None:
        group.forget()
        del groups[record.group_id]


def _group_metadata(group: ShareGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.set_group_epoch(value.epoch, value.metadata_hash)
    elif group.members or group.targets or group.assignment_epoch != -1:
        raise LoadFailure(f"the tombstone of group {group.group_id} comes before those of its members")


def _member_metadata(group: ShareGroup, key: Any, value: Any) -> None:
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
    group.update_member(
        replace(
            old or ShareGroupMember(key.member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=shared_names(group.members, old, frozenset(value.subscribed_topic_names)),
        )
    )


def _target_metadata(group: ShareGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif group.targets:
        raise LoadFailure(
            f"the tombstone of group {group.group_id}'s assignment comes before those of its members"
        )
    else:
        group.set_assignment_epoch(-1, 0)


def _target_member(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove_target(key.member_id)
    else:
        group.set_target(key.member_id, partitions_of(value.topic_partitions))


def _current_assignment(group: ShareGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is not None:
        group.update_member(
            replace(
                old or ShareGroupMember(key.member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned=partitions_of(value.assigned_partitions),
            )
        )
    elif old is not None:
        group.update_member(
            replace(
                old,
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                assigned={},
            )
        )


def _state_partitions(group: ShareGroup, key: Any, value: Any) -> None:
    group.set_states(
        None
        if value is None
        else StatePartitions(
            _named(value.initializing_topics),
            _named(value.initialized_topics),
            frozenset([topic.topic_id for topic in value.deleting_topics]),
        )
    )


def _named(topics: Any) -> dict[bytes, NamedPartitions]:
    return {
        topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics
    }


_REPLAYS: dict[int, Callable[[ShareGroup, Any, Any], None]] = {
    MEMBER_METADATA: _member_metadata,
    GROUP_METADATA: _group_metadata,
    TARGET_METADATA: _target_metadata,
    TARGET_MEMBER: _target_member,
    CURRENT_ASSIGNMENT: _current_assignment,
    STATE_PARTITIONS: _state_partitions,
}
