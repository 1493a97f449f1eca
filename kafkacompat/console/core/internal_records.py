"""Some records of the internal topics as text: committed offsets, the ids of groups and transactions, and which records
a share group is done with.

All other records are shown as bytes.
"""

from __future__ import annotations

import json
from typing import Any

from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, uuid_to_text
from kafkacompat.wire.apis import (
    group_record_classes,
    share_record_classes,
    transaction_record_classes,
)
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.group_metadata_key import GroupMetadataKey
from kafkacompat.wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from kafkacompat.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kafkacompat.wire.messages.offset_commit_key import OffsetCommitKey
from kafkacompat.wire.messages.offset_commit_value import OffsetCommitValue
from kafkacompat.wire.messages.share_snapshot_key import ShareSnapshotKey
from kafkacompat.wire.messages.share_snapshot_value import ShareSnapshotValue
from kafkacompat.wire.messages.share_update_key import ShareUpdateKey
from kafkacompat.wire.messages.share_update_value import ShareUpdateValue
from kafkacompat.wire.messages.transaction_log_key import TransactionLogKey
from kafkacompat.wire.messages.transaction_log_value import TransactionLogValue

CLASSES = {
    OFFSETS_TOPIC: group_record_classes,
    TRANSACTION_TOPIC: transaction_record_classes,
    SHARE_STATE_TOPIC: share_record_classes,
}
"""By topic: a function from a record's type to the message classes of its key and value."""
TYPE_BYTES = 2
"""Bytes of the type before a key, and of the version before a value."""
TRANSACTION_STATES = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
DELIVERY_STATES = {0: "available", 2: "accepted", 4: "archived"}
"""Records that are in flight are not stored as such."""
MAX_BATCHES_SHOWN = 1_000


def internal_key(topic: str, key: bytes | None) -> str | None:
    """Return the key as JSON text. None if this topic or type is not supported."""
    message = _message(topic, key, key, 0)
    match message:
        case OffsetCommitKey() | LegacyOffsetCommitKey():
            return _json(
                type="committed offset",
                group=message.group,
                topic=message.topic,
                partition=message.partition,
            )
        case GroupMetadataKey():
            return _json(type="group", group=message.group)
        case TransactionLogKey():
            return _json(type="transaction", transactional_id=message.transactional_id)
        case ShareSnapshotKey() | ShareUpdateKey():
            return _json(
                type="share snapshot" if isinstance(message, ShareSnapshotKey) else "share update",
                group=message.group_id,
                topic_id=uuid_to_text(message.topic_id),
                partition=message.partition,
            )
    return None


def internal_value(topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """Return the value as JSON text. None if it is not supported. The key gives the type of the value."""
    message = _message(topic, key, value, 1)
    match message:
        case OffsetCommitValue() | LegacyOffsetCommitValue():
            return _json(
                offset=message.offset, metadata=message.metadata, committed_ms=message.commit_timestamp
            )
        case TransactionLogValue():
            return _json(
                producer_id=message.producer_id,
                producer_epoch=message.producer_epoch,
                timeout_ms=message.transaction_timeout_ms,
                state=TRANSACTION_STATES.get(message.transaction_status, message.transaction_status),
            )
        case ShareSnapshotValue() | ShareUpdateValue():
            return _json(
                snapshot_epoch=message.snapshot_epoch,
                leader_epoch=message.leader_epoch,
                start_offset=message.start_offset,
                done=message.delivery_complete_count,
                batches=[
                    f"{batch.first_offset}-{batch.last_offset}: "
                    f"{DELIVERY_STATES.get(batch.delivery_state, batch.delivery_state)}, "
                    f"delivered {batch.delivery_count}"
                    for batch in message.state_batches[:MAX_BATCHES_SHOWN]
                ],
            )
    return None


def _message(topic: str, key: bytes | None, data: bytes | None, part: int) -> Message | None:
    """Return the key (part 0) or value (part 1) of a record. None for an unknown type or version, and for truncated bytes."""
    if topic not in CLASSES or key is None or data is None:
        return None
    try:
        message_class = CLASSES[topic](_int16(key))[part]
        version = _int16(data) if part else message_class.MIN_VERSION
        if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
            return None
        return decode(message_class, version, data, TYPE_BYTES)
    except (KeyError, WireError):
        return None


def _int16(data: bytes) -> int:
    return int.from_bytes(data[:TYPE_BYTES], "big", signed=True)


def _json(**fields: Any) -> str:
    return json.dumps(fields, indent=2)
