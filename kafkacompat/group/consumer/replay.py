"""Applies the records of consumer groups to the groups of a shard. Follows the replay of Kafka's GroupMetadataManager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.group.consumer.consumer_group import ConsumerGroup, ResolvedRegularExpression
from kafkacompat.group.consumer.member import (
    ClassicMemberMetadata,
    ConsumerGroupMember,
)
from kafkacompat.group.consumer.records import ConsumerGroupRecord, owned_partitions, state_of
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH, Subscribers
from kafkacompat.group.modern_records import shared_names
from kafkacompat.group.modern_replay import (
    check_may_leave,
    replay_group_metadata,
    replay_modern_record,
    replay_target_metadata,
)

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
    from kafkacompat.memory import Memory


GROUP_METADATA = 3


def replay_consumer_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ConsumerGroupRecord,
    memory: Memory | None = None,
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    replay_modern_record(groups, subscribers, record, ConsumerGroup, _REPLAYS, GROUP_METADATA, memory)


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_subscription_metadata_record = value is not None


def _member_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is None:
        check_may_leave(group, key.member_id)
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
    GROUP_METADATA: replay_group_metadata,
    4: _partition_metadata,
    5: _member_metadata,
    6: replay_target_metadata,
    7: _target_member,
    8: _current_assignment,
    16: _regular_expression,
}
