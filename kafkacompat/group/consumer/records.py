"""The records of consumer groups in `__consumer_offsets` (KIP-848): keys, values, and the orders that loaders rely on.

A member's tombstones come in the order current assignment, target assignment, metadata. Apache Kafka refuses to load a
log in which a member's metadata goes while it still has an assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.modern_records import Messages, ModernGroupRecord
from kafkacompat.wire.messages import (
    consumer_group_current_member_assignment_value as current_value,
)
from kafkacompat.wire.messages import consumer_group_member_metadata_value as member_value
from kafkacompat.wire.messages import consumer_group_target_assignment_member_value as target_value
from kafkacompat.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkacompat.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kafkacompat.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkacompat.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kafkacompat.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkacompat.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkacompat.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kafkacompat.wire.messages.consumer_group_partition_metadata_value import (
    ConsumerGroupPartitionMetadataValue,
)
from kafkacompat.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kafkacompat.wire.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from kafkacompat.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from kafkacompat.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from kafkacompat.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkacompat.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkacompat.group.consumer.assignor import Assignment
    from kafkacompat.group.consumer.member import ConsumerGroupMember, OwnedPartitions

MESSAGES: Messages = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord(ModernGroupRecord):
    """One of those types."""


# --- the group


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def subscription_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def regular_expression_record(
    group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int
) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


# --- a member


def member_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    classic = member.classic
    return ConsumerGroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else member_value.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    member_value.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                target_value.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def current_assignment_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            assigned_partitions=_topic_partitions(member.assigned),
            partitions_pending_revocation=_topic_partitions(member.pending_revocation),
        ),
    )


def _topic_partitions(owned: OwnedPartitions) -> list[current_value.TopicPartitions]:
    found = []
    for topic_id, epochs in owned.items():
        partitions = sorted(epochs)
        found.append(
            current_value.TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return found


def owned_partitions(
    topics: list[current_value.TopicPartitions], member_epoch: int
) -> dict[bytes, dict[int, int]]:
    """Older brokers wrote no assignment epochs: the member's epoch counts for them."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def state_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    return MemberState(value.state)


def member_tombstones(group_id: str, member_id: str) -> Iterator[ConsumerGroupRecord]:
    for key_class in (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    ):
        yield ConsumerGroupRecord(key_class(group_id=group_id, member_id=member_id), None)


def group_tombstones(
    group_id: str, member_ids: Sequence[str], regexes: Iterable[str]
) -> Iterator[ConsumerGroupRecord]:
    for member_id in member_ids:
        yield ConsumerGroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        )
    for member_id in member_ids:
        yield ConsumerGroupRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        )
    yield ConsumerGroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    for member_id in member_ids:
        yield ConsumerGroupRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        )
    for regex in regexes:
        yield regular_expression_tombstone(group_id, regex)
    yield subscription_metadata_tombstone(group_id)
    yield ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None)
