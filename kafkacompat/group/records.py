"""The records of `__consumer_offsets`: bytes to and from the values that the machine replays.

This module knows Kafka's framing (key: int16 type and body; value: int16 version and body, null for a tombstone), the
value versions, and the kinds that are kept but not supported. Values are written as by Kafka 4.3: OffsetCommit version
4, or 1 with an explicit expiry; GroupMetadata version 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import LoadFailure, RecordRun, decoded_in_steps
from kafkacompat.group.consumer.records import MESSAGES as CONSUMER_MESSAGES
from kafkacompat.group.consumer.records import ConsumerGroupRecord
from kafkacompat.group.kinds import GroupKind
from kafkacompat.group.modern_records import (
    VALUE_VERSION,
    ModernGroupRecord,
    decode_modern_record,
    encode_modern_record,
)
from kafkacompat.group.share.records import MESSAGES as SHARE_MESSAGES
from kafkacompat.group.share.records import ShareGroupRecord
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.messages.group_metadata_key import GroupMetadataKey
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue
from kafkacompat.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kafkacompat.wire.messages.offset_commit_key import OffsetCommitKey
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Generator

_TYPE = struct.Struct(">h")

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_VERSION = 3


MODERN_MESSAGES = {**CONSUMER_MESSAGES, **SHARE_MESSAGES}
"""Record type -> key and value."""
CARRIED_TYPES: dict[int, GroupKind] = dict.fromkeys((17, 19, 20, 21, 22, 23), GroupKind.STREAMS)
MEMBER_TYPES = frozenset({19})
"""Of the kept types, those with one record per member."""


class OffsetAndMetadata:
    """A committed offset. `record_offset` is its record's offset in the partition's log, -1 before it is written."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int = -1,
        topic_id: Uuid = ZERO_UUID,
        record_offset: int = -1,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        """-1 if the commit has no expiry time."""
        self.topic_id = topic_id
        """ZERO_UUID if unknown."""
        self.record_offset = record_offset


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
class CarriedRecord:
    """A record of an unsupported group kind. Only its key is decoded."""

    kind: GroupKind
    record_type: int
    group_id: str
    key: bytes
    live: bool
    """False for a tombstone."""


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
    | CarriedRecord
    | EncodedRecord
    | RecordRun
)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value bytes. Kept records are never written here: they raise TypeError."""
    if isinstance(record, OffsetRecord):
        key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        key_bytes = b"\x00\x01" + encode(key, 0)
        value = record.value
        if value is None:
            return key_bytes, None
        version = (
            OFFSET_COMMIT_VERSION if value.expire_timestamp_ms < 0 else OFFSET_COMMIT_VERSION_WITH_EXPIRY
        )
        body = encode(
            OffsetCommitValue(
                offset=value.offset,
                leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp_ms,
                expire_timestamp=value.expire_timestamp_ms,
                topic_id=value.topic_id,
            ),
            version,
        )
        return key_bytes, _TYPE.pack(version) + body
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
        kind = CARRIED_TYPES.get(record_type)
        if kind is None:
            return None
        group_id = decode(
            GroupMetadataKey, 0, key[2:]
        ).group  # in all these types the key begins with the group
        return CarriedRecord(kind, record_type, group_id, bytes(key), value is not None)
    except WireError as error:
        raise LoadFailure(f"a record with key {bytes(key[:64]).hex()} cannot be read: {error}") from error


def decode_large(key: bytes, value: bytes) -> Generator[int, None, GroupRecord | None]:
    """Like `decode_record`, in steps that report their cost."""
    record_type = int.from_bytes(key[: _TYPE.size], "big", signed=True)
    if record_type != GROUP_METADATA and record_type not in MODERN_MESSAGES:
        return decode_record(key, value)
    record = decode_record(key, None)
    assert isinstance(record, (GroupMetadataRecord, ConsumerGroupRecord, ShareGroupRecord))
    if isinstance(record, GroupMetadataRecord):
        value_class, version = GroupMetadataValue, _version(value, 4)
    else:
        value_class, version = MODERN_MESSAGES[record_type][1], _version(value, VALUE_VERSION)
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
    version = _version(value, 4 if record_type == OFFSET_COMMIT else 0)
    if record_type == LEGACY_OFFSET_COMMIT:
        legacy = decode(LegacyOffsetCommitValue, version, value[2:])
        return OffsetAndMetadata(legacy.offset, -1, legacy.metadata, legacy.commit_timestamp)
    body = decode(OffsetCommitValue, version, value[2:])
    return OffsetAndMetadata(
        body.offset,
        body.leader_epoch,
        body.metadata,
        body.commit_timestamp,
        body.expire_timestamp,
        body.topic_id,
    )


def _decode_group(value: bytes | None) -> GroupMetadataValue | None:
    if value is None:
        return None
    return decode(GroupMetadataValue, _version(value, 4), value[2:])


def _version(value: bytes, highest: int) -> int:
    if len(value) < _TYPE.size:
        raise LoadFailure(f"a value of {len(value)} bytes")
    version: int = _TYPE.unpack_from(value)[0]
    if not 0 <= version <= highest:
        raise LoadFailure(f"value version {version} is not known (highest {highest})")
    return version
