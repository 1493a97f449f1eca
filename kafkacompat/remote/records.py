"""Records of the topic `__remote_log_metadata`, as Apache Kafka writes them (its RemoteLogMetadataSerde). Pure.

A value begins with varints of frame version, type and version of the message. Records have no keys. The partition of the topic
follows from topic id and partition, so that all that is said of one partition keeps its order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kafkacompat.ids import Uuid, partition_of_key
from kafkacompat.remote.metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    leader_epochs,
)
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages import (
    remote_log_segment_metadata_record as added,
)
from kafkacompat.wire.messages import (
    remote_log_segment_metadata_update_record as updated,
)
from kafkacompat.wire.messages import (
    remote_partition_delete_metadata_record as deleted,
)
from kafkacompat.wire.primitives import read_uvarint, write_uvarint

FRAME_VERSION = 1
VERSION = 0
_MESSAGES: dict[int, type[Message]] = {
    0: added.RemoteLogSegmentMetadataRecord,
    1: updated.RemoteLogSegmentMetadataUpdateRecord,
    2: deleted.RemotePartitionDeleteMetadataRecord,
}
"""Type 3, a snapshot of a segment without its partition, is defined, but Apache Kafka never writes it."""
_MASK = 0xFFFFFFFF
S = TypeVar("S", bound=IntEnum)


def encode_record(metadata: RemoteLogMetadata) -> bytes:
    """The value of the record that says this."""
    message = _message_of(metadata)
    out = bytearray()
    for number in (FRAME_VERSION, message.API_KEY or 0, VERSION):
        write_uvarint(out, number)
    return bytes(out) + encode(message, VERSION)


def decode_record(value: bytes) -> RemoteLogMetadata:
    """What a record says. Raises WireError for what is broken, or not known to this version."""
    frame_version, position = read_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"a record of remote log metadata has frame version {frame_version}")
    message_type, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    if message_type not in _MESSAGES or version != VERSION:
        raise WireError(f"a record of remote log metadata has type {message_type}, version {version}")
    message = decode(_MESSAGES[message_type], version, value, position)
    if isinstance(message, added.RemoteLogSegmentMetadataRecord):
        return _segment_of(message)
    if isinstance(message, updated.RemoteLogSegmentMetadataUpdateRecord):
        return RemoteLogSegmentMetadataUpdate(
            _segment_id_of(message.remote_log_segment_id),
            message.event_timestamp_ms,
            message.custom_metadata,
            _state_of(RemoteLogSegmentState, message.remote_log_segment_state),
            message.broker_id,
        )
    assert isinstance(message, deleted.RemotePartitionDeleteMetadataRecord)
    return RemotePartitionDeleteMetadata(
        _partition_of(message.topic_id_partition),
        _state_of(RemotePartitionDeleteState, message.remote_partition_delete_state),
        message.event_timestamp_ms,
        message.broker_id,
    )


def metadata_partition(partition: TopicIdPartition, partition_count: int) -> int:
    """The partition of `__remote_log_metadata` with the records of this one, of `partition_count`
    (RemoteLogMetadataTopicPartitioner)."""
    most, least = (
        int.from_bytes(partition.topic_id[:8], "big"),
        int.from_bytes(partition.topic_id[8:], "big"),
    )
    code = 1
    # Objects.hash: of each number Long.hashCode, or the number itself where it is an Integer.
    for each in (least ^ least >> 32, most ^ most >> 32, partition.partition):
        code = (31 * code + (each & _MASK)) & _MASK
    return partition_of_key(code.to_bytes(4, "big"), partition_count)


def _message_of(metadata: RemoteLogMetadata) -> Message:
    if isinstance(metadata, RemoteLogSegmentMetadata):
        segment_id = metadata.remote_log_segment_id
        return added.RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=added.RemoteLogSegmentIdEntry(
                topic_id_partition=added.TopicIdPartitionEntry(
                    name=segment_id.topic_id_partition.topic,
                    id=segment_id.topic_id_partition.topic_id,
                    partition=segment_id.topic_id_partition.partition,
                ),
                id=segment_id.id,
            ),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            broker_id=metadata.broker_id,
            max_timestamp_ms=metadata.max_timestamp_ms,
            event_timestamp_ms=metadata.event_timestamp_ms,
            segment_leader_epochs=[
                added.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
                for epoch, offset in metadata.segment_leader_epochs
            ],
            segment_size_in_bytes=metadata.segment_size_in_bytes,
            custom_metadata=metadata.custom_metadata,
            remote_log_segment_state=metadata.state,
            txn_index_empty=metadata.txn_idx_empty,
        )
    if isinstance(metadata, RemoteLogSegmentMetadataUpdate):
        segment_id = metadata.remote_log_segment_id
        return updated.RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=updated.RemoteLogSegmentIdEntry(
                topic_id_partition=updated.TopicIdPartitionEntry(
                    name=segment_id.topic_id_partition.topic,
                    id=segment_id.topic_id_partition.topic_id,
                    partition=segment_id.topic_id_partition.partition,
                ),
                id=segment_id.id,
            ),
            broker_id=metadata.broker_id,
            event_timestamp_ms=metadata.event_timestamp_ms,
            custom_metadata=metadata.custom_metadata,
            remote_log_segment_state=metadata.state,
        )
    return deleted.RemotePartitionDeleteMetadataRecord(
        topic_id_partition=deleted.TopicIdPartitionEntry(
            name=metadata.topic_id_partition.topic,
            id=metadata.topic_id_partition.topic_id,
            partition=metadata.topic_id_partition.partition,
        ),
        broker_id=metadata.broker_id,
        event_timestamp_ms=metadata.event_timestamp_ms,
        remote_partition_delete_state=metadata.state,
    )


def _segment_of(message: added.RemoteLogSegmentMetadataRecord) -> RemoteLogSegmentMetadata:
    try:
        return RemoteLogSegmentMetadata(
            _segment_id_of(message.remote_log_segment_id),
            message.start_offset,
            message.end_offset,
            message.max_timestamp_ms,
            message.broker_id,
            message.event_timestamp_ms,
            message.segment_size_in_bytes,
            leader_epochs((each.leader_epoch, each.offset) for each in message.segment_leader_epochs),
            message.custom_metadata,
            _state_of(RemoteLogSegmentState, message.remote_log_segment_state),
            message.txn_index_empty,
        )
    except ValueError as error:
        raise WireError(str(error)) from error


def _segment_id_of(
    entry: added.RemoteLogSegmentIdEntry | updated.RemoteLogSegmentIdEntry,
) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(_partition_of(entry.topic_id_partition), entry.id)


def _partition_of(
    entry: added.TopicIdPartitionEntry | updated.TopicIdPartitionEntry | deleted.TopicIdPartitionEntry,
) -> TopicIdPartition:
    topic_id: Uuid = entry.id
    return TopicIdPartition(topic_id, entry.name, entry.partition)


def _state_of(states: type[S], number: int) -> S:
    try:
        return states(number)
    except ValueError as error:
        raise WireError(f"a record of remote log metadata has {states.__name__} {number}") from error
