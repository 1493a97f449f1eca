"""The records of `__consumer_offsets`, of all kinds of groups: the values that the shard replays, how they are made, and
their bytes.

It knows Kafka's framing (key: int16 type and body; value: int16 version and body, null for a tombstone), and the value
versions. Values are written as by Kafka 4.4: OffsetCommit version 4, or 1 with an explicit expiry; GroupMetadata
version 3. Follows Kafka's GroupCoordinatorRecordHelpers, StreamsCoordinatorRecordHelpers and GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkacompat.coordinator.core import LoadFailure, RecordRun, decoded_in_steps
from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.group.consumer.consumer_group_member import MemberState
from kafkacompat.group.streams.tasks_tuple import sorted_tasks
from kafkacompat.ids import Uuid
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.messages import consumer_group_current_member_assignment_value as consumer_current_value
from kafkacompat.wire.messages import consumer_group_member_metadata_value as member_value
from kafkacompat.wire.messages import consumer_group_target_assignment_member_value as consumer_target_value
from kafkacompat.wire.messages import share_group_current_member_assignment_value as share_current_value
from kafkacompat.wire.messages import share_group_state_partition_metadata_value as state_value
from kafkacompat.wire.messages import share_group_target_assignment_member_value as share_target_value
from kafkacompat.wire.messages import streams_group_current_member_assignment_value as streams_current_value
from kafkacompat.wire.messages import streams_group_member_metadata_value as streams_member_value
from kafkacompat.wire.messages import streams_group_metadata_value as streams_metadata_value
from kafkacompat.wire.messages import streams_group_target_assignment_member_value as streams_target_value
from kafkacompat.wire.messages import streams_group_topology_value as topology_value
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
from kafkacompat.wire.messages.group_metadata_key import GroupMetadataKey
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue
from kafkacompat.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kafkacompat.wire.messages.offset_commit_key import OffsetCommitKey
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue
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
from kafkacompat.wire.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from kafkacompat.wire.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from kafkacompat.wire.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkacompat.wire.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkacompat.wire.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkacompat.wire.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkacompat.wire.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from kafkacompat.wire.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from kafkacompat.wire.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkacompat.wire.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkacompat.wire.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkacompat.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from kafkacompat.group.consumer.assignor import Assignment
    from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember, OwnedPartitions
    from kafkacompat.group.share.share_group_member import Partitions, ShareGroupMember
    from kafkacompat.group.share.state_partitions import NamedPartitions
    from kafkacompat.group.streams.streams_group_member import StreamsGroupMember
    from kafkacompat.group.streams.streams_topology import StreamsTopology, TopicInfo
    from kafkacompat.group.streams.tasks_tuple import Tasks, TasksTuple, TasksWithEpochs
    from kafkacompat.wire.message import Message


DEAD = "Dead"
"""The state of a group that is being deleted."""


class GroupKind(Enum):
    """The values are the types in the protocol."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


# --- records of the newer kinds of groups


VALUE_VERSION = 0
_VERSION_BYTES = VALUE_VERSION.to_bytes(2, "big")

Messages = Mapping[int, tuple[type[Any], type[Any]]]
"""Record type -> key and value. A key is that record's API key in the message definitions."""


@dataclass(frozen=True, slots=True)
class ModernGroupRecord:
    key: Any
    value: Any
    """None for a tombstone."""

    @property
    def group_id(self) -> str:
        group_id: str = self.key.group_id
        return group_id


R = TypeVar("R", bound=ModernGroupRecord)


def encode_modern_record(record: ModernGroupRecord) -> tuple[bytes, bytes | None]:
    key = record.key.API_KEY.to_bytes(2, "big") + encode(record.key, 0)
    return key, None if record.value is None else _VERSION_BYTES + encode(record.value, VALUE_VERSION)


def decode_modern_record(
    record_class: type[R], messages: Messages, record_type: int, key: bytes, value: bytes | None
) -> R:
    """Raises LoadFailure or WireError. `key` and `value` still have their first two bytes."""
    key_class, value_class = messages[record_type]
    decoded_key = decode(key_class, 0, key[2:])
    if value is None:
        return record_class(decoded_key, None)
    version = int.from_bytes(value[:2], "big", signed=True)
    if version != VALUE_VERSION:
        raise LoadFailure(f"value version {version} of record type {record_type} is not known")
    return record_class(decoded_key, decode(value_class, VALUE_VERSION, value[2:]))


class Subscriber(Protocol):
    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...


def shared_names(
    members: Mapping[str, Subscriber], old: Subscriber | None, names: frozenset[str]
) -> frozenset[str]:
    """Members with equal subscriptions share one set: a thousand members of a group usually have the same."""
    if old is not None and old.subscribed_topic_names == names:
        return old.subscribed_topic_names
    other = next(iter(members.values()), None)
    return (
        other.subscribed_topic_names if other is not None and other.subscribed_topic_names == names else names
    )


# --- consumer groups


CONSUMER_MESSAGES: Messages = {
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


def consumer_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def subscription_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def consumer_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
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


def consumer_member_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
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


def consumer_target_record(group_id: str, member_id: str, target: Assignment) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                consumer_target_value.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def consumer_current_assignment_record(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
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


def _topic_partitions(owned: OwnedPartitions) -> list[consumer_current_value.TopicPartitions]:
    found = []
    for topic_id, epochs in owned.items():
        partitions = sorted(epochs)
        found.append(
            consumer_current_value.TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return found


def owned_partitions(
    topics: list[consumer_current_value.TopicPartitions], member_epoch: int
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


def consumer_member_tombstones(group_id: str, member_id: str) -> Iterator[ConsumerGroupRecord]:
    for key_class in (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    ):
        yield ConsumerGroupRecord(key_class(group_id=group_id, member_id=member_id), None)


def consumer_group_tombstones(
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


# --- share groups


MEMBER_METADATA = 10
SHARE_GROUP_METADATA = 11
TARGET_METADATA = 12
TARGET_MEMBER = 13
CURRENT_ASSIGNMENT = 14
STATE_PARTITIONS = 15

SHARE_MESSAGES: Messages = {
    MEMBER_METADATA: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    SHARE_GROUP_METADATA: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    TARGET_METADATA: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    TARGET_MEMBER: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    CURRENT_ASSIGNMENT: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    STATE_PARTITIONS: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}


@dataclass(frozen=True, slots=True)
class ShareGroupRecord(ModernGroupRecord):
    """One of those types."""


# --- the group


def share_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def share_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ShareGroupRecord:
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


def share_member_record(group_id: str, member: ShareGroupMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
        ),
    )


def share_target_record(group_id: str, member_id: str, target: Partitions) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                share_target_value.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def share_current_assignment_record(group_id: str, member: ShareGroupMember) -> ShareGroupRecord:
    return ShareGroupRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            assigned_partitions=[
                share_current_value.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ],
        ),
    )


def partitions_of(topics: Sequence[Any]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def share_member_tombstones(group_id: str, member_id: str) -> Iterator[ShareGroupRecord]:
    for key_class in (
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupMemberMetadataKey,
    ):
        yield ShareGroupRecord(key_class(group_id=group_id, member_id=member_id), None)


def share_group_tombstones(group_id: str) -> Iterator[ShareGroupRecord]:
    """Of a group without members."""
    for key_class in (
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupStatePartitionMetadataKey,
        ShareGroupMetadataKey,
    ):
        yield ShareGroupRecord(key_class(group_id=group_id), None)


# --- streams groups


STREAMS_GROUP_METADATA = 17
STREAMS_MEMBER_METADATA = 19
STREAMS_TARGET_METADATA = 20
STREAMS_TARGET_MEMBER = 21
STREAMS_CURRENT_ASSIGNMENT = 22
STREAMS_TOPOLOGY = 23

STREAMS_MESSAGES: Messages = {
    STREAMS_GROUP_METADATA: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    STREAMS_MEMBER_METADATA: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    STREAMS_TARGET_METADATA: (
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMetadataValue,
    ),
    STREAMS_TARGET_MEMBER: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    STREAMS_CURRENT_ASSIGNMENT: (
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupCurrentMemberAssignmentValue,
    ),
    STREAMS_TOPOLOGY: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
"""Type 18 had the partitions of the topics in early releases. Kafka has no definition of it any more, and passes over it."""


@dataclass(frozen=True, slots=True)
class StreamsGroupRecord(ModernGroupRecord):
    """One of those types."""


# --- the group


def streams_epoch_record(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: Mapping[str, str],
    stored_description_topology_epoch: int = -1,
    failed_description_topology_epoch: int = -1,
) -> StreamsGroupRecord:
    """`assignment_configs`: those settings of the assignor that are to be compared with later ones. The last two are what a
    plug-in of Apache Kafka has left (KIP-1331)."""
    return StreamsGroupRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[
                streams_metadata_value.LastAssignmentConfig(key=name, value=value)
                for name, value in assignment_configs.items()
            ],
            stored_description_topology_epoch=stored_description_topology_epoch,
            failed_description_topology_epoch=failed_description_topology_epoch,
        ),
    )


def streams_target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def streams_topology_record(group_id: str, topology: StreamsTopology) -> StreamsGroupRecord:
    return StreamsGroupRecord(
        StreamsGroupTopologyKey(group_id=group_id),
        StreamsGroupTopologyValue(
            epoch=topology.epoch,
            subtopologies=[
                topology_value.Subtopology(
                    subtopology_id=subtopology.subtopology_id,
                    source_topics=list(subtopology.source_topics),
                    source_topic_regex=list(subtopology.source_topic_regex),
                    state_changelog_topics=_topic_infos(subtopology.state_changelog_topics),
                    repartition_sink_topics=list(subtopology.repartition_sink_topics),
                    repartition_source_topics=_topic_infos(subtopology.repartition_source_topics),
                    copartition_groups=[
                        topology_value.CopartitionGroup(
                            source_topics=list(group.source_topics),
                            source_topic_regex=list(group.source_topic_regex),
                            repartition_source_topics=list(group.repartition_source_topics),
                        )
                        for group in subtopology.copartition_groups
                    ],
                )
                for subtopology in topology.subtopologies.values()
            ],
        ),
    )


def _topic_infos(topics: Sequence[TopicInfo]) -> list[topology_value.TopicInfo]:
    return [
        topology_value.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[topology_value.TopicConfig(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


# --- a member


def streams_member_record(group_id: str, member: StreamsGroupMember) -> StreamsGroupRecord:
    endpoint = member.user_endpoint
    return StreamsGroupRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None
            if endpoint is None
            else streams_member_value.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[
                streams_member_value.KeyValue(key=key, value=member.client_tags[key])
                for key in sorted(member.client_tags, key=string_order)
            ],
        ),
    )


def streams_target_record(group_id: str, member_id: str, target: TasksTuple) -> StreamsGroupRecord:
    def task_ids(tasks: Tasks) -> list[streams_target_value.TaskIds]:
        return [
            streams_target_value.TaskIds(subtopology_id=subtopology_id, partitions=partitions)
            for subtopology_id, partitions in sorted_tasks(tasks)
        ]

    return StreamsGroupRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=task_ids(target.active),
            standby_tasks=task_ids(target.standby),
            warmup_tasks=task_ids(target.warmup),
        ),
    )


def streams_current_assignment_record(group_id: str, member: StreamsGroupMember) -> StreamsGroupRecord:
    assigned, pending = member.assigned, member.pending_revocation
    return StreamsGroupRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            active_tasks=_task_ids_with_epochs(assigned.active),
            standby_tasks=_task_ids(assigned.standby),
            warmup_tasks=_task_ids(assigned.warmup),
            active_tasks_pending_revocation=_task_ids_with_epochs(pending.active),
            standby_tasks_pending_revocation=_task_ids(pending.standby),
            warmup_tasks_pending_revocation=_task_ids(pending.warmup),
        ),
    )


def _task_ids(tasks: Tasks) -> list[streams_current_value.TaskIds]:
    return [
        streams_current_value.TaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]


def _task_ids_with_epochs(tasks: TasksWithEpochs) -> list[streams_current_value.TaskIds]:
    return [
        streams_current_value.TaskIds(
            subtopology_id=subtopology_id,
            partitions=partitions,
            assignment_epochs=[tasks[subtopology_id][partition] for partition in partitions],
        )
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]


def streams_member_tombstones(group_id: str, member_id: str) -> Iterator[StreamsGroupRecord]:
    for key_class in (
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupMemberMetadataKey,
    ):
        yield StreamsGroupRecord(key_class(group_id=group_id, member_id=member_id), None)


def streams_group_tombstones(group_id: str, member_ids: Sequence[str]) -> Iterator[StreamsGroupRecord]:
    for key_class in (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupTargetAssignmentMemberKey):
        for member_id in member_ids:
            yield StreamsGroupRecord(key_class(group_id=group_id, member_id=member_id), None)
    yield StreamsGroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    for member_id in member_ids:
        yield StreamsGroupRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
    for key_class_of_group in (StreamsGroupMetadataKey, StreamsGroupTopologyKey):
        yield StreamsGroupRecord(key_class_of_group(group_id=group_id), None)


# --- offsets, classic groups, and the bytes of all records


_TYPE = struct.Struct(">h")

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
"""The only one that has an expiry. It lacks what later ones have."""
GROUP_METADATA_VERSION = 3


MODERN_MESSAGES = {**CONSUMER_MESSAGES, **SHARE_MESSAGES, **STREAMS_MESSAGES}
"""Record type -> key and value."""


class OffsetAndMetadata(OffsetCommitValue):
    """A committed offset: the value of its record, and where that is."""

    __slots__ = ("record_offset",)
    record_offset: int
    """The record's offset in the partition's log, from its replay on."""

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return OffsetCommitValue.field_names()


class OffsetRecord:
    """A commit of one partition. `value` None is its tombstone."""

    __slots__ = ("group_id", "partition", "topic", "value")

    def __init__(self, group_id: str, topic: str, partition: int, value: OffsetAndMetadata | None) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partition = partition
        self.value = value


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    group_id: str
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A record that was encoded beside the requests. It is not replayed."""

    group_id: str
    key: bytes
    value: bytes | None


GroupRecord = (
    OffsetRecord
    | GroupMetadataRecord
    | ConsumerGroupRecord
    | ShareGroupRecord
    | StreamsGroupRecord
    | EncodedRecord
    | RecordRun
)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value bytes."""
    if isinstance(record, OffsetRecord):
        key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        key_bytes = b"\x00\x01" + encode(key, 0)
        value = record.value
        if value is None:
            return key_bytes, None
        version = OffsetAndMetadata.MAX_VERSION
        if value.expire_timestamp >= 0:
            version = OFFSET_COMMIT_VERSION_WITH_EXPIRY
        return key_bytes, _TYPE.pack(version) + encode(value, version)
    if isinstance(record, GroupMetadataRecord):
        key_bytes = b"\x00\x02" + encode(GroupMetadataKey(group=record.group_id), 0)
        if record.value is None:
            return key_bytes, None
        return key_bytes, _TYPE.pack(GROUP_METADATA_VERSION) + encode(record.value, GROUP_METADATA_VERSION)
    if isinstance(record, ModernGroupRecord):
        return encode_modern_record(record)
    if isinstance(record, EncodedRecord):
        return record.key, record.value
    raise TypeError(f"{type(record).__name__} is never encoded here")


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, or None for an unknown type. Raises LoadFailure for a known type that cannot be read."""
    try:
        if len(key) < _TYPE.size:
            raise LoadFailure(f"a key of {len(key)} bytes")
        (record_type,) = _TYPE.unpack_from(key)
        if record_type in (OFFSET_COMMIT, LEGACY_OFFSET_COMMIT):
            offset_key = decode(OffsetCommitKey, 0, key[2:])
            return OffsetRecord(
                offset_key.group, offset_key.topic, offset_key.partition, _decode_offset(record_type, value)
            )
        if record_type == GROUP_METADATA:
            group_key = decode(GroupMetadataKey, 0, key[2:])
            return GroupMetadataRecord(group_key.group, _decode_group(value))
        if record_type in CONSUMER_MESSAGES:
            return decode_modern_record(
                ConsumerGroupRecord, CONSUMER_MESSAGES, record_type, bytes(key), value
            )
        if record_type in SHARE_MESSAGES:
            return decode_modern_record(ShareGroupRecord, SHARE_MESSAGES, record_type, bytes(key), value)
        if record_type in STREAMS_MESSAGES:
            return decode_modern_record(StreamsGroupRecord, STREAMS_MESSAGES, record_type, bytes(key), value)
        return None
    except WireError as error:
        raise LoadFailure(f"a record with key {bytes(key[:64]).hex()} cannot be read: {error}") from error


def decode_large(key: bytes, value: bytes) -> Generator[int, None, GroupRecord | None]:
    """Like `decode_record`, in steps that report their cost."""
    record_type = int.from_bytes(key[: _TYPE.size], "big", signed=True)
    if record_type != GROUP_METADATA and record_type not in MODERN_MESSAGES:
        return decode_record(key, value)
    record = decode_record(key, None)
    assert isinstance(record, (GroupMetadataRecord, ModernGroupRecord))
    if isinstance(record, GroupMetadataRecord):
        value_class = GroupMetadataValue
    else:
        value_class = MODERN_MESSAGES[record_type][1]
    version = _version(value, value_class)
    try:
        decoded: Any = yield from decoded_in_steps(value_class, version, value)
    except WireError as error:
        raise LoadFailure(f"group {record.group_id[:64]!r} cannot be read: {error}") from error
    if isinstance(record, GroupMetadataRecord):
        return GroupMetadataRecord(record.group_id, decoded)
    return type(record)(record.key, decoded)


def _decode_offset(record_type: int, value: bytes | None) -> OffsetAndMetadata | None:
    if value is None:
        return None
    if record_type == LEGACY_OFFSET_COMMIT:
        legacy = decode(LegacyOffsetCommitValue, _version(value, LegacyOffsetCommitValue), value[2:])
        return OffsetAndMetadata(
            offset=legacy.offset, metadata=legacy.metadata, commit_timestamp=legacy.commit_timestamp
        )
    return decode(OffsetAndMetadata, _version(value, OffsetAndMetadata), value[2:])


def _decode_group(value: bytes | None) -> GroupMetadataValue | None:
    if value is None:
        return None
    return decode(GroupMetadataValue, _version(value, GroupMetadataValue), value[2:])


def _version(value: bytes, value_class: type[Message]) -> int:
    if len(value) < _TYPE.size:
        raise LoadFailure(f"a value of {len(value)} bytes")
    version: int = _TYPE.unpack_from(value)[0]
    if not value_class.MIN_VERSION <= version <= value_class.MAX_VERSION:
        raise LoadFailure(f"value version {version} is not known (highest {value_class.MAX_VERSION})")
    return version
