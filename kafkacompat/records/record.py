"""Records inside a batch of magic 2: their varints, decoding, encoding.

An uncompressed body becomes records and back, strictly: whatever Kafka calls malformed raises RecordMalformed. check.py does the
same checks at speed, without making objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

Headers = tuple[tuple[str, bytes | None], ...]
ALL_HEADERS = 1 << 62


class RecordMalformed(ValueError):
    """A record whose inside does not fit its length, or has an impossible length or count."""


class Record(NamedTuple):
    """One record with its absolute timestamp in ms and its offset relative to the batch."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def append_varint(out: bytearray, value: int) -> None:
    """Zigzag, 32 or 64 bits alike."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(body: Buffer, position: int, bits: int = 32) -> tuple[int, int]:
    """(value, position after it); RecordMalformed when it is too long or the body ends."""
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
    """A record without its length in front."""
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


def iterate_records(body: Buffer, count: int, base_timestamp_ms: int) -> Iterator[Record]:
    """Decode `count` records of an uncompressed body. RecordMalformed when they do not fill it exactly."""
    return walk_records(bytes(body), count, base_timestamp_ms)


def walk_records(
    data: bytes | bytearray, count: int, base_timestamp_ms: int, headers_most: int = ALL_HEADERS
) -> Iterator[Record]:
    """As `iterate_records`, of a large body without a copy.

    Of a record's headers at most so many are made, and one more tells how many follow; those are not looked at. With 0 nothing
    behind the value is.
    """
    position, end = 0, len(data)
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0 or size > end - position:
            raise RecordMalformed(f"a record of {size} bytes where {end - position} remain")
        yield _decode_record(data, position, position + size, base_timestamp_ms, headers_most)
        position += size
    if position != end:
        raise RecordMalformed(f"{end - position} bytes after the last record")


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        append_varint(out, len(value))
        out += value


def _decode_record(
    data: bytes | bytearray, position: int, end: int, base_timestamp_ms: int, headers_most: int
) -> Record:
    timestamp_delta, position = read_varint(data, position + 1, 64)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    if not headers_most:
        if position > end:
            raise RecordMalformed(f"a record's parts end at {position}, its length at {end}")
        return Record(offset_delta, base_timestamp_ms + timestamp_delta, key, value)
    header_count, position = read_varint(data, position)
    if header_count < 0 or header_count > end - position:
        raise RecordMalformed(f"a header count of {header_count}")
    headers: Headers = ()
    if header_count:
        found = []
        for _ in range(min(header_count, headers_most)):
            name, position = _read_bytes(data, position, end)
            if name is None:
                raise RecordMalformed("a header without a key")
            value_bytes, position = _read_bytes(data, position, end)
            found.append((name.decode("utf-8", "replace"), value_bytes))
        headers = tuple(found)
        if header_count > headers_most:
            return Record(
                offset_delta,
                base_timestamp_ms + timestamp_delta,
                key,
                value,
                (*headers, (f"({header_count - headers_most} more)", None)),
            )
    if position != end:
        raise RecordMalformed(f"a record's parts end {end - position} bytes before its length says")
    return Record(offset_delta, base_timestamp_ms + timestamp_delta, key, value, headers)


def _read_bytes(data: Any, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        # Kafka reads any negative length of a key or value as null.
        return None, position
    if size > end - position:
        raise RecordMalformed(f"{size} bytes where {end - position} remain in the record")
    part = data[position : position + size]
    return part if type(part) is bytes else bytes(part), position + size
