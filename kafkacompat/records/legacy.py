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
_LZ4_CONTENT_SIZE = 0x08
"""Of the flags in a frame's header: the size of the contents follows."""


def iterate_legacy(
    batch: Buffer, header: BatchHeader, bytes_most: int = codecs.UNPACKED_BYTES_MAX
) -> Iterator[tuple[int, Record]]:
    """(absolute offset, record) of one message of magic 0 or 1, or of the messages in a compressed one.

    `batch` is exactly that message. Raises RecordMalformed for invalid bytes, and DecompressionFailed.
    """
    yield from OpenedMessage(batch, header, bytes_most)


class OpenedMessage:
    """One message of magic 0 or 1, decompressed: (absolute offset, record) of itself, or of the messages that it
    contains."""

    __slots__ = ("_body", "_header", "_shift")

    def __init__(self, message: Buffer, header: BatchHeader, bytes_most: int) -> None:
        """`message` is exactly the message. Raises RecordMalformed and DecompressionFailed."""
        self._header = header
        self._body: Buffer = message
        self._shift = 0
        if not header.codec:
            return
        _, _, value = _parse(message, header.magic)
        if value is None:
            raise RecordMalformed("a compressed message without a value")
        if header.magic == 0 and header.codec == codecs.LZ4:
            value = _with_right_checksum(value)
        self._body = codecs.unpack(header.codec, value, bytes_most)
        last = _last_offset(self._body)
        # In magic 1 the inner messages have offsets from 0 on, and the wrapper has the offset of the last one. Some
        # versions of librdkafka produced wrappers with the offset 0.
        if header.magic == 1 and header.base_offset:
            self._shift = header.base_offset - last

    def __len__(self) -> int:
        """Bytes."""
        return len(self._body)

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """Raises RecordMalformed."""
        header, inner = self._header, self._body
        if not header.codec:
            yield header.base_offset, Record(0, *_parse(inner, header.magic))
            return
        position = 0
        while position + _OFFSET_AND_SIZE.size <= len(inner):
            offset, size = _OFFSET_AND_SIZE.unpack_from(inner, position)
            message = inner[position : position + 12 + size]
            if zlib.crc32(message[16:]) != int.from_bytes(message[12:16], "big"):
                raise RecordMalformed("an inner message's crc is wrong")
            timestamp_ms, key, value = _parse(message, message[16])
            if header.is_log_append_time:
                timestamp_ms = header.max_timestamp_ms
            yield offset + self._shift, Record(0, timestamp_ms, key, value)
            position += 12 + size


def _with_right_checksum(frame: bytes) -> bytes:
    """The lz4 frame with the checksum of its header. Clients of Kafka 0.8 and 0.9 took it over the wrong bytes, and Kafka
    does not look at it in magic 0."""
    end = 14 if frame[4:5] and frame[4] & _LZ4_CONTENT_SIZE else 6
    return frame[:end] + bytes((_xxh32_of_few(frame[4:end]) >> 8 & 0xFF,)) + frame[end + 1 :]


def _xxh32_of_few(data: bytes) -> int:
    """XXH32 of less than 16 bytes, with the seed 0."""
    value = 374761393 + len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        value = (
            _rotated(value + int.from_bytes(data[start : start + 4], "little") * 3266489917, 17) * 668265263
        )
    for byte in data[whole:]:
        value = _rotated(value + byte * 374761393, 11) * 2654435761
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits & 0xFFFFFFFF | value >> 32 - bits


def _last_offset(inner: Buffer) -> int:
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
