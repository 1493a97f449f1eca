"""Records in a batch of magic 2: the Record type, varints, encoding. scan.py reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

RECORD_BYTES_MIN = 7
"""Its length, attributes, timestamp, offset, the lengths of key and value, and the number of headers."""

TIMESTAMP_MAX = 2**63 - 1

Headers = tuple[tuple[str, bytes | None], ...]


class RecordMalformed(ValueError):
    """A record whose contents do not match its length, or with an impossible length or count."""


class Record(NamedTuple):
    """One record with its absolute timestamp in ms and its offset relative to the batch."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def as_long(number: int) -> int:
    """As Java's arithmetic has it. Base and delta of a stored timestamp may be any numbers, so that their sum may need 65 bits."""
    return (number + 2**63) % 2**64 - 2**63


def append_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint, 32 or 64 bits."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_SHORT = tuple([_varint(value) for value in range(1024)])
"""The varints of small numbers."""


def plain_record(offset_delta: int, key: bytes, value: bytes) -> bytes | None:
    """A record with its length prefix, without headers and timestamp delta. None if it is not a short one."""
    key_size, value_size = len(key), len(value)
    if offset_delta >= 1000 or key_size + value_size >= 1000:
        return None
    short = _SHORT
    body = b"".join((b"\0\0", short[offset_delta], short[key_size], key, short[value_size], value, b"\0"))
    return short[len(body)] + body


def read_varint(body: Buffer, position: int, bits: int = 32) -> tuple[int, int]:
    """(value, position after it). Raises RecordMalformed if the varint is too long or the body ends."""
    result = shift = 0
    longest = 28 if bits == 32 else 63
    try:
        while True:
            byte = body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > longest:
                raise RecordMalformed("a varint of too many bytes")
    except IndexError:
        raise RecordMalformed("the body ends within a varint") from None
    result &= (1 << bits) - 1
    return (result >> 1) ^ -(result & 1), position


def encode_record(record: Record, base_timestamp_ms: int) -> bytearray:
    """A record without its length prefix."""
    body = bytearray(1)
    append_varint(body, record.timestamp_ms - base_timestamp_ms)
    append_varint(body, record.offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode("utf-8"))
        _append_bytes(body, value)
    return body


def encode_records(records: Iterable[Record], base_timestamp_ms: int) -> bytearray:
    out = bytearray()
    for record in records:
        body = encode_record(record, base_timestamp_ms)
        append_varint(out, len(body))
        out += body
    return out


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        append_varint(out, len(value))
        out += value
