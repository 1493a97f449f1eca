"""The beginning of a record that a schema registry's serializer has written. Pure.

A byte 0, the id of the schema in 4 bytes, and for Protobuf the way to the message's type in its file.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = 0
HEAD_BYTES: Final = 5
INDEXES_MAX: Final = 32
"""Maximum depth of a Protobuf message's type in others."""
_VARINT_BYTES_MAX: Final = 5

MALFORMED_RECORD: Final = "malformed record"


class NotRead(ValueError):
    """A record that is not read, or not shown. The message is the reason. The jobs, `pipeline try` and the console catch it:
    whatever else is wrong with one record or its schema is a class of it. What is wrong with the registry itself is
    PipelineFailed."""

    told = "the record is refused"
    prefix = ""
    """Before the message of one that a registry raises, in the reason of the records."""


class Malformed(NotRead):
    """A record that is no event, whatever the schema."""


class Unshown(NotRead):
    """A record that is read, and is not shown as JSON."""

    told = "the record is read, and not shown"


def schema_id(value: bytes) -> int:
    """Return the id. Malformed."""
    if len(value) < HEAD_BYTES or value[0] != MAGIC:
        raise Malformed(f"{MALFORMED_RECORD}: expected byte 0 and the 4 bytes of a schema's id")
    return int.from_bytes(value[1:HEAD_BYTES], "big")


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message's type, from the outside, and where the message begins. Malformed."""
    count, at = _zigzag(value, HEAD_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise Malformed(f"{MALFORMED_RECORD}: it has {count} message indexes, not 0 to {INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(value[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise Malformed(
        f"{MALFORMED_RECORD}: expected the message indexes of a Protobuf record after the schema's id"
    )
