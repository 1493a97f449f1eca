"""Applies the records of share groups to the groups of a shard. Follows the replay of Kafka's GroupMetadataManager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH, Subscribers
from kafkacompat.group.modern_records import shared_names
from kafkacompat.group.modern_replay import (
    check_may_leave,
    replay_group_metadata,
    replay_modern_record,
    replay_target_metadata,
)
from kafkacompat.group.share.member import ShareGroupMember
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
    from kafkacompat.memory import Memory


def replay_share_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ShareGroupRecord,
    memory: Memory | None = None,
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    replay_modern_record(groups, subscribers, record, ShareGroup, _REPLAYS, GROUP_METADATA, memory)


def _member_metadata(group: ShareGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is None:
        check_may_leave(group, key.member_id)
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
    GROUP_METADATA: replay_group_metadata,
    TARGET_METADATA: replay_target_metadata,
    TARGET_MEMBER: _target_member,
    CURRENT_ASSIGNMENT: _current_assignment,
    STATE_PARTITIONS: _state_partitions,
}
