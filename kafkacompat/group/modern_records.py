"""What the records of the newer kinds of groups have in common: a key and a value of one version, as messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.wire.codec import decode, encode

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
