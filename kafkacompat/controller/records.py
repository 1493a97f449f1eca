"""Metadata records and their frame: uvarint 1, uvarint type, uvarint version, flexible message body.

It converts bytes to (type, message) and back, and maps types to message classes. Merge rules are unknown here. All
classes are imported together, at the start: a committed record cannot wait for a descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkacompat.wire.apis import message_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.tables import METADATA_RECORDS

FRAME_VERSION = 1
MAX_RECORDS_PER_OPERATION = 10_000
"""Kafka's bound for the records of one user operation."""
MAX_RECORDS_PER_BATCH = 10_000
"""Kafka's bound for the records of a batch that need not be atomic."""


class ReplayError(Exception):
    """The metadata log has a record that contradicts earlier ones, or that 4.4 does not know. Fatal."""


class MetadataRecord(NamedTuple):
    """A record and its version."""

    message: Message
    version: int


class RecordClasses:
    """Message classes by record type."""

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        self._classes: dict[int, type[Message]] = {
            key: message_class(name) for key, name in METADATA_RECORDS.items()
        }

    def get(self, api_key: int) -> type[Message]:
        """Raises ReplayError for a type that Kafka 4.4 does not have."""
        found = self._classes.get(api_key)
        if found is None:
            raise ReplayError(f"metadata record type {api_key} is unknown to this software")
        return found


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise ReplayError("a metadata record's frame is cut short or broken")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def frame(record: MetadataRecord) -> bytes:
    message, version = record
    assert message.API_KEY is not None
    return b"\x01" + _uvarint(message.API_KEY) + _uvarint(version) + encode(message, version)


def frame_all(records: Sequence[MetadataRecord]) -> list[bytes]:
    return [frame(record) for record in records]


def unframe(value: bytes, classes: RecordClasses) -> tuple[int, Message]:
    """(type, message). Raises ReplayError for a frame, type or version that Kafka 4.4 does not have."""
    if len(value) >= 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        api_key, version, position = value[1], value[2], 3
    else:
        frame_version, position = _read_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise ReplayError(f"a metadata record has frame version {frame_version}; only 1 is known")
        api_key, position = _read_uvarint(value, position)
        version, position = _read_uvarint(value, position)
    message_class = classes.get(api_key)
    if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
        raise ReplayError(
            f"{message_class.__name__} has version {version}, which this software does not know"
        )
    try:
        return api_key, decode(message_class, version, value, position)
    except WireError as error:
        raise ReplayError(f"a {message_class.__name__} of the metadata log is broken: {error}") from error
