"""Batches that are small on the wire and need much work in a broker, each with a valid CRC."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.frame
import zstandard

from kafkacompat.records import compression
from kafkacompat.records.batch import assemble
from kafkacompat.records.record import append_varint

NOW_MS = 1_700_000_000_000


def batch_around(packed: bytes, codec: int, count: int = 1) -> bytearray:
    """A batch whose body is `packed`, valid or not."""
    return assemble(
        packed,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def batch_of_body(body: bytes | bytearray, codec: int, count: int = 1) -> bytearray:
    return batch_around(compression.compress(codec, body), codec, count)


def record(inside: bytes | bytearray) -> bytes:
    framed = bytearray()
    append_varint(framed, len(inside))
    return bytes(framed + inside)


def record_of_headers(count: int) -> bytes:
    """One record with `count` headers without name and value."""
    inside = bytearray(b"\0\0\0\1\1")
    append_varint(inside, count)
    return record(inside + bytes(2 * count))


def records_of_headers(records: int, headers: int) -> bytearray:
    body = bytearray()
    for index in range(records):
        inside = bytearray(b"\0\0")
        append_varint(inside, index)
        inside += b"\1\1"
        append_varint(inside, headers)
        body += record(inside + bytes(2 * headers))
    return body


def record_of_value(size: int, timestamp_delta: int = 0) -> bytes:
    inside = bytearray(1)
    append_varint(inside, timestamp_delta)
    inside += b"\0\1"
    append_varint(inside, size)
    return record(inside + bytes(size) + b"\0")


def tiny_records(count: int, *, even: bool = True) -> bytearray:
    """Records without key, of one size, or with differing neighbours."""
    body = bytearray()
    for index in range(count):
        inside = bytearray(b"\0\0")
        append_varint(inside, index)
        size = 1 if even else index * 7 % 5
        inside += b"\1"
        append_varint(inside, size)
        body += record(inside + bytes(size) + b"\0")
    return body


def many_frames(codec: int, count: int) -> bytes:
    """Frames, members or streams of one byte each."""
    if codec == compression.GZIP:
        return gzip.compress(b"x", mtime=0) * count
    if codec == compression.LZ4:
        return lz4.frame.compress(b"x", store_size=False) * count
    if codec == compression.ZSTD:
        return zstandard.compress(b"x") * count
    return compression.compress(codec, b"x")[:16] * count


def many_blocks(count: int) -> bytes:
    """A xerial stream of empty blocks."""
    return compression.compress(compression.SNAPPY, b"x") + b"\0\0\0\1\0" * count


def tables(body: bytes, size: int) -> bytes:
    """A gzip member of about `size` bytes: `body`, behind as many empty blocks as fit, each with its own table of codes
    (RFC 1951, 3.2.7). A block has 90 bits."""
    bits: list[int] = []

    def put(value: int, width: int) -> None:
        bits.extend(value >> at & 1 for at in range(width))

    for _ in range(4):  # 45 bytes
        put(0, 1)  # not the last block
        put(2, 2)  # with dynamic codes
        put(0, 5)  # 257 codes of literals and lengths
        put(0, 5)  # 1 code of distances
        put(14, 4)  # 18 lengths of the codes that tell the lengths
        for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
            put(symbol in (1, 18), 3)
        put(1, 1)
        put(127, 7)  # 138 codes of length 0
        put(1, 1)
        put(107, 7)  # 118 codes of length 0
        put(0, 2)  # the end of the block, and the distance: length 1
        put(0, 1)  # the end of the block
    period = sum(bit << at for at, bit in enumerate(bits)).to_bytes(len(bits) // 8, "little")
    last = zlib.compressobj(wbits=-15)
    return b"".join(
        (
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
            period * (size // len(period)),
            last.compress(body) + last.flush(),
            struct.pack("<II", zlib.crc32(body), len(body)),
        )
    )
