"""Records of the internal topics in words, where that is simple: committed offsets and the ids of groups and transactions.

Follows the key and value versions of Kafka's group and transaction coordinators. What is not known here is shown as bytes.
"""

from __future__ import annotations

import json
import struct
from typing import Any

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
OFFSET_COMMIT_KEYS = (0, 1)
OFFSET_COMMIT_VALUES = (0, 1, 2, 3)
FLEXIBLE_OFFSET_COMMIT_VALUE = 4
CLASSIC_GROUP_KEY = 2
TRANSACTION_KEY = 0
MAX_LENGTH_BYTES = 5
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


def internal_key(topic: str, key: bytes | None) -> str | None:
    """What the key says, as JSON text; None if this topic or version is not told here."""
    if key is None:
        return None
    try:
        (version,) = struct.unpack_from(">h", key)
        if topic == CONSUMER_OFFSETS and version in OFFSET_COMMIT_KEYS:
            group, at = _text(key, 2)
            name, at = _text(key, at)
            (partition,) = struct.unpack_from(">i", key, at)
            return _json(type="committed offset", group=group, topic=name, partition=partition)
        if topic == CONSUMER_OFFSETS and version == CLASSIC_GROUP_KEY:
            return _json(type="group", group=_text(key, 2)[0])
        if topic == TRANSACTION_STATE and version == TRANSACTION_KEY:
            return _json(type="transaction", transactional_id=_text(key, 2)[0])
    except (struct.error, UnicodeDecodeError):
        return None
    return None


def internal_value(topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """What the value says, as JSON text; None if it is not told here. The key says which kind of value it is."""
    if key is None or value is None:
        return None
    try:
        (kind,) = struct.unpack_from(">h", key)
        (version,) = struct.unpack_from(">h", value)
        if topic == CONSUMER_OFFSETS and kind in OFFSET_COMMIT_KEYS and version in OFFSET_COMMIT_VALUES:
            (offset,) = struct.unpack_from(">q", value, 2)
            metadata, at = _text(value, 14 if version >= 3 else 10)
            (committed_ms,) = struct.unpack_from(">q", value, at)
            return _json(offset=offset, metadata=metadata, committed_ms=committed_ms)
        if (
            topic == CONSUMER_OFFSETS
            and kind in OFFSET_COMMIT_KEYS
            and version == FLEXIBLE_OFFSET_COMMIT_VALUE
        ):
            (offset,) = struct.unpack_from(">q", value, 2)
            metadata, at = _compact_text(value, 14)
            (committed_ms,) = struct.unpack_from(">q", value, at)
            return _json(offset=offset, metadata=metadata, committed_ms=committed_ms)
        if topic == TRANSACTION_STATE and kind == TRANSACTION_KEY and version in (0, 1):
            producer_id, epoch, timeout_ms, state = struct.unpack_from(">qhib", value, 2)
            return _json(
                producer_id=producer_id,
                producer_epoch=epoch,
                timeout_ms=timeout_ms,
                state=TRANSACTION_STATES.get(state, state),
            )
    except (struct.error, UnicodeDecodeError):
        return None
    return None


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise struct.error
    return data[at + 2 : end].decode(), end


def _compact_text(data: bytes, at: int) -> tuple[str, int]:
    length = 0
    for number in range(MAX_LENGTH_BYTES):
        (byte,) = struct.unpack_from(">B", data, at)
        length |= (byte & 0x7F) << (7 * number)
        at += 1
        if byte < 0x80:
            break
    else:
        raise struct.error
    # The length is written one higher; zero stands for no text.
    end = at + length - 1
    if length == 0 or end > len(data):
        raise struct.error
    return data[at:end].decode(), end


def _json(**fields: Any) -> str:
    return json.dumps(fields, indent=2)
