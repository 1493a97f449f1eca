"""The records of the coordinators' topics as JSON text by their definitions, as `kafkacompat consume` shows them. States are
told in words.

Long values are shown as bytes.
"""

from __future__ import annotations

import json
from typing import Any

from kafkacompat.wire.apis import COORDINATOR_CLASSES
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.shown import shown

TYPE_BYTES = 2
"""Bytes of the type before a key, and of the version before a value."""
TOLD_BYTES = 1 << 18
"""The longest key or value that is told. The text is many times as long."""
MAX_ELEMENTS_SHOWN = 1_000
"""Of each list."""
WORDS = {
    "transactionStatus": {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    },
    "deliveryState": {0: "available", 2: "accepted", 4: "archived"},
}
"""By field. Share records that are in flight are not stored as such."""


def internal_key(topic: str, key: bytes | None) -> str | None:
    """Return the key as JSON text. None if it is of no coordinator's topic, or cannot be read."""
    return _told(topic, key, key, 0)


def internal_value(topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """Return the value as JSON text, or None, as above. The key gives the type of the value."""
    return _told(topic, key, value, 1)


def _told(topic: str, key: bytes | None, data: bytes | None, part: int) -> str | None:
    """Return the key (part 0) or value (part 1) of a record. None for an unknown type or version, and for truncated bytes."""
    if topic not in COORDINATOR_CLASSES or key is None or data is None or len(data) > TOLD_BYTES:
        return None
    try:
        message_class = COORDINATOR_CLASSES[topic](_int16(key))[part]
        version = _int16(data) if part else message_class.MIN_VERSION
        if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
            return None
        message = shown(message_class, version, data, TYPE_BYTES)
    except (KeyError, WireError):
        return None
    return json.dumps(_in_words(message), indent=2)


def _in_words(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_words(each) for each in value[:MAX_ELEMENTS_SHOWN]]
    if isinstance(value, dict):
        return {
            name: WORDS[name].get(each, each) if name in WORDS else _in_words(each)
            for name, each in value.items()
        }
    return value


def _int16(data: bytes) -> int:
    return int.from_bytes(data[:TYPE_BYTES], "big", signed=True)
