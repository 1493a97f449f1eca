"""The two formats before record batches (magic 0 and 1), as old segments may have them.

Each message or wrapper is opened separately. These formats are never written here, because Kafka 4 accepts only magic
2. Follows KIP-31 and KIP-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import NO_TIMESTAMP, BatchHeader
from kafkacompat.records.record import Record, RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_AND_SIZE = struct.Struct(">qi")


def iterate_legacy(
    batch: Buffer, header: BatchHeader, bytes_most: int = codecs.UNPACKED_BYTES_MAX
) -> Iterator[tuple[int, Record]]:
    """(absolute offset, record) of one message of magic 0 or 1, or of the messages in a compressed one.

    `batch` is exactly that message. Raises RecordMalformed for invalid bytes, and DecompressionFailed.
    """
    timestamp_ms, key, value = _parse(batch, header.magic)
    if not header.codec:
        yield header.base_offset, Record(0, timestamp_ms, key, value)
        return
    if value is None:
        raise RecordMalformed("a compressed message without a value")
    inner = codecs.unpack(header.codec, value, bytes_most)
    last = _last_offset(inner)
    # In magic 1 the inner messages have offsets from 0 on, and the wrapper has the offset of the last one.
    shift = header.base_offset - last if header.magic == 1 else 0
    position = 0
    while position + _OFFSET_AND_SIZE.size <= len(inner):
        offset, size = _OFFSET_AND_SIZE.unpack_from(inner, position)
        message = inner[position : position + 12 + size]
        if zlib.crc32(message[16:]) != int.from_bytes(message[12:16], "big"):
            raise RecordMalformed("an inner message's crc is wrong")
        inner_timestamp_ms, inner_key, inner_value = _parse(message, message[16])
        stamped = header.max_timestamp_ms if header.is_log_append_time else inner_timestamp_ms
        yield offset + shift, Record(0, stamped, inner_key, inner_value)
        position += 12 + size


def _last_offset(inner: bytes | bytearray) -> int:
    """The offset of the last inner message. This also checks the sizes of all inner messages: there may be millions,
    and they are created one by one."""
    position = last = -1
    following = 0
    while following + _OFFSET_AND_SIZE.size <= len(inner):
        position = following
        last, size = _OFFSET_AND_SIZE.unpack_from(inner, position)
        if size < 14 or size > len(inner) - position - 12:
            raise RecordMalformed(f"an inner message of {size} bytes")
        following += 12 + size
    if position < 0:
        raise RecordMalformed("a compressed message with nothing inside")
    return last


def _parse(message: Buffer, magic: int) -> tuple[int, bytes | None, bytes | None]:
    data = bytes(message)
    try:
        timestamp_ms = _INT64.unpack_from(data, 18)[0] if magic == 1 else NO_TIMESTAMP
        key, position = _read_bytes(data, 26 if magic == 1 else 18)
        value, position = _read_bytes(data, position)
    except struct.error as error:
        raise RecordMalformed("a message ends too early") from error
    if position != len(data):
        raise RecordMalformed(f"{len(data) - position} bytes after a message's value")
    return timestamp_ms, key, value


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size = _INT32.unpack_from(data, position)[0]
    position += 4
    if size < 0:
        return None, position
    if size > len(data) - position:
        raise RecordMalformed(f"{size} bytes where {len(data) - position} remain")
    return data[position : position + size], position + size
