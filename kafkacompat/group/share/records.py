"""The records of share groups in `__consumer_offsets` (KIP-932): keys, values, and the orders that loaders rely on.

A member's tombstones come in the order current assignment, target assignment, metadata, as those of consumer groups do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkacompat.group.modern_records import Messages, ModernGroupRecord
from kafkacompat.wire.messages import share_group_current_member_assignment_value as current_value
from kafkacompat.wire.messages import share_group_state_partition_metadata_value as state_value
from kafkacompat.wire.messages import share_group_target_assignment_member_value as target_value
from kafkacompat.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from kafkacompat.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from kafkacompat.wire.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkacompat.wire.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from kafkacompat.wire.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkacompat.wire.messages.share_group_metadata_value import ShareGroupMetadataValue
from kafkacompat.wire.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from kafkacompat.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
)
from kafkacompat.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from kafkacompat.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
)
from kafkacompat.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from kafkacompat.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkacompat.group.share.member import Partitions, ShareGroupMember
    from kafkacompat.group.share.state_partitions import NamedPartitions
    from kafkacompat.ids import Uuid

MEMBER_METADATA = 10
GROUP_METADATA = 11
TARGET_METADATA = 12
TARGET_MEMBER = 13
CURRENT_ASSIGNMENT = 14
STATE_PARTITIONS = 15

MESSAGES: Messages = {
    MEMBER_METADATA: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    GROUP_METADATA: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    TARGET_METADATA: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    TARGET_MEMBER: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    CURRENT_ASSIGNMENT: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    STATE_PARTITIONS: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}


@dataclass(frozen=True, slots=True)
class ShareGroupRecord(ModernGroupRecord):
    """One of those types."""


# --- the group


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def state_partitions_record(
    group_id: str,
    initializing: Mapping[Uuid, NamedPartitions],
    initialized: Mapping[Uuid, NamedPartitions],
    deleting: Mapping[Uuid, str],
) -> ShareGroupRecord:
    """`deleting`: topic id -> name."""

    def infos(topics: Mapping[Uuid, NamedPartitions]) -> list[state_value.TopicPartitionsInfo]:
        return [
            state_value.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions)
            )
            for topic_id, each in topics.items()
        ]

    return ShareGroupRecord(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=infos(initializing),
            initialized_topics=infos(initialized),
            deleting_topics=[
                state_value.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in deleting.items()
            ],
        ),
    )


# --- a member


def member_record(group_id: str, member: ShareGroupMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                target_value.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def current_assignment_record(group_id: str, member: ShareGroupMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            assigned_partitions=[
                current_value.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ],
        ),
    )


def partitions_of(topics: Sequence[Any]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def member_tombstones(group_id: str, member_id: str) -> Iterator[ShareGroupRecord]:
    for key_class in (
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupMemberMetadataKey,
    ):
        yield ShareGroupRecord(key_class(group_id=group_id, member_id=member_id), None)


def group_tombstones(group_id: str) -> Iterator[ShareGroupRecord]:
    """Of a group without members."""
    for key_class in (
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupStatePartitionMetadataKey,
        ShareGroupMetadataKey,
    ):
        yield ShareGroupRecord(key_class(group_id=group_id), None)
