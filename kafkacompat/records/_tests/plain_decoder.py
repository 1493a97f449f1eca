"""A simple decoder of a body's records, field by field, with which scan.py is compared."""

from __future__ import annotations

import io

from kafkacompat.records.record import Record, RecordMalformed


def varint(stream: io.BytesIO, bits: int = 32) -> int:
    value = 0
    for shift in range(0, 35 if bits == 32 else 70, 7):
        byte = stream.read(1)
        if not byte:
            raise RecordMalformed("cut off")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            value %= 1 << bits
            return -(value + 1) // 2 if value & 1 else value // 2
    raise RecordMalformed("too long")


def part(stream: io.BytesIO) -> bytes | None:
    size = varint(stream)
    if size < 0:
        return None
    found = stream.read(size)
    if len(found) < size:
        raise RecordMalformed("cut off")
    return found


def decoded(body: bytes, count: int, *, headers_seen: bool = True) -> list[Record]:
    stream = io.BytesIO(body)
    records = [_one(part(stream), headers_seen) for _ in range(count)]
    if stream.read():
        raise RecordMalformed("more follows")
    return records


def _one(inside: bytes | None, headers_seen: bool) -> Record:
    stream = io.BytesIO(inside or b"")
    if not stream.read(1):
        raise RecordMalformed("without attributes")
    timestamp, offset = varint(stream, 64), varint(stream)
    key, value = part(stream), part(stream)
    if not headers_seen:
        return Record(offset, timestamp, key, value)
    count = varint(stream)
    if not 0 <= count <= len(inside or b""):
        raise RecordMalformed("a wrong count of headers")
    headers = []
    for _ in range(count):
        name = part(stream)
        if name is None:
            raise RecordMalformed("a header without a key")
        headers.append((name.decode("utf-8", "replace"), part(stream)))
    if stream.read():
        raise RecordMalformed("more in the record")
    return Record(offset, timestamp, key, value, tuple(headers))
