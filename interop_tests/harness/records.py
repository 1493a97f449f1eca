"""Record batches (magic 2), built and parsed by hand. A test can set every field to an invalid value."""

from __future__ import annotations

import gzip
import struct
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c
import lz4.frame
import snappy
import zstandard

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_HEADER_SIZE = 61
NOW_MS = 1_700_000_000_000


def zigzag(value: int) -> bytes:
    """A varint or varlong in the encoding of records."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _take_zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _sized(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def encode_record(
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp_delta: int = 0,
) -> bytes:
    """One record with its length."""
    body = b"\x00" + zigzag(timestamp_delta) + zigzag(offset_delta) + _sized(key) + _sized(value)
    body += zigzag(len(headers or ()))
    for name, content in headers or ():
        body += _sized(name.encode()) + _sized(content)
    return zigzag(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    """Compress a batch as current clients do. Snappy is a single raw block."""
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "snappy":
        return bytes(snappy.compress(data))
    if codec == "lz4":
        return bytes(lz4.frame.compress(data))
    if codec == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    return data


def decompress(codec: int, data: bytes) -> bytes:
    """The decompressed records section of a batch. Snappy may have either framing."""
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        if not data.startswith(b"\x82SNAPPY\x00"):
            return bytes(snappy.uncompress(data))
        out, position = b"", 16
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            out += snappy.uncompress(data[position + 4 : position + 4 + size])
            position += 4 + size
        return out
    if codec == 3:
        return bytes(lz4.frame.decompress(data))
    if codec == 4:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


@dataclass
class BatchPlan:
    """The contents of a batch. A field that is None is computed. Any other value is written unchanged."""

    values: list[bytes | None] = field(default_factory=lambda: [b"value"])
    keys: list[bytes | None] | None = None
    codec: str = "none"
    base_offset: int = 0
    base_timestamp_ms: int = NOW_MS
    timestamp_deltas: list[int] | None = None
    max_timestamp_ms: int | None = None
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    record_count: int | None = None
    last_offset_delta: int | None = None
    batch_length: int | None = None
    records: bytes | None = None

    @classmethod
    def of_now(cls, *values: bytes | None) -> BatchPlan:
        """Records that no retention deletes while a test runs (see `without_retention`)."""
        return cls(list(values), base_timestamp_ms=time.time_ns() // 1_000_000)

    def encode(self) -> bytes:
        count = len(self.values)
        keys = self.keys or [None] * count
        deltas = self.timestamp_deltas or [0] * count
        records = self.records
        if records is None:
            records = b"".join(
                encode_record(number, key, value, None, delta)
                for number, (key, value, delta) in enumerate(zip(keys, self.values, deltas, strict=True))
            )
        records = compress(self.codec, records)
        newest = self.base_timestamp_ms + max(deltas, default=0)
        body = struct.pack(
            ">hiqqqhii",
            self.attributes | CODECS[self.codec],
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp_ms,
            newest if self.max_timestamp_ms is None else self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.record_count is None else self.record_count,
        )
        body += records
        crc = crc32c.crc32c(body) if self.crc is None else self.crc
        length = len(body) + 9 if self.batch_length is None else self.batch_length
        head = struct.pack(">qiibI", self.base_offset, length, self.partition_leader_epoch, self.magic, crc)
        return head + body


class Record(NamedTuple):
    """A record as it was stored, with its absolute offset and time."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Batch(NamedTuple):
    """A batch as it was stored; its CRC has been checked."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    records: list[Record]
    size: int


def _decode_records(data: bytes, count: int, base_offset: int, base_timestamp_ms: int) -> list[Record]:
    records, position = [], 0
    for _ in range(count):
        _, position = _take_zigzag(data, position)
        timestamp_delta, position = _take_zigzag(data, position + 1)
        offset_delta, position = _take_zigzag(data, position)
        parts: list[bytes | None] = []
        for _ in range(2):
            size, position = _take_zigzag(data, position)
            parts.append(None if size < 0 else data[position : position + size])
            position += max(size, 0)
        headers: list[tuple[str, bytes | None]] = []
        header_count, position = _take_zigzag(data, position)
        for _ in range(header_count):
            size, position = _take_zigzag(data, position)
            name = data[position : position + size].decode()
            position += size
            size, position = _take_zigzag(data, position)
            headers.append((name, None if size < 0 else data[position : position + size]))
            position += max(size, 0)
        records.append(
            Record(
                base_offset + offset_delta, base_timestamp_ms + timestamp_delta, parts[0], parts[1], headers
            )
        )
    assert position == len(data), "bytes left over behind the last record"
    return records


def decode_batches(data: bytes | None, control_records: bool = False) -> list[Batch]:
    """Every complete batch in a Fetch response. A truncated batch at the end is left out. A wrong CRC raises
    AssertionError.

    Control batches have no records unless the caller asks for them.
    """
    batches, position = [], 0
    data = data or b""
    while position + BATCH_HEADER_SIZE <= len(data):
        base_offset, length, leader_epoch, magic, crc = struct.unpack_from(">qiibI", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        assert magic == 2, f"a batch of magic {magic}"
        assert crc32c.crc32c(data[position + 21 : end]) == crc, f"wrong CRC at offset {base_offset}"
        (attributes, last_delta, base_ms, max_ms, producer_id, producer_epoch, sequence, count) = (
            struct.unpack_from(">hiqqqhii", data, position + 21)
        )
        content = decompress(attributes & 7, data[position + BATCH_HEADER_SIZE : end])
        hidden = attributes & 32 and not control_records
        records = [] if hidden else _decode_records(content, count, base_offset, base_ms)
        if attributes & 8:
            records = [record._replace(timestamp_ms=max_ms) for record in records]
        batches.append(
            Batch(
                base_offset,
                base_offset + last_delta,
                leader_epoch,
                attributes,
                producer_id,
                producer_epoch,
                sequence,
                base_ms,
                max_ms,
                records,
                end - position,
            )
        )
        position = end
    return batches
