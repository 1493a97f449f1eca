"""The 61-byte header of a record batch (magic 2): parse, check, stamp and build.

This module has everything that a header tells about a batch, and assembles batches. It also parses the common
beginning of the two old formats (magic 0 and 1), which exist only on disk; legacy.py opens those. Follows KIP-98's
message format.

ValidatedBatch is a batch that is ready to be appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.records import compression as codecs
from kafkacompat.records.crc import crc32c
from kafkacompat.records.record import Record, encode_records, plain_record

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
OFFSET_AND_LENGTH = struct.Struct(">qi")
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length field does not include."""
LEGACY_MINIMUM_LENGTH = 14
"""Smallest length field of any format: a magic-0 message with null key and value."""
MINIMUM_PREFIX = 17
"""Bytes up to and including the magic byte, which has the same position in every format."""
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

STAMP = struct.Struct(">qii")
"""The leader's fields, in front of the bytes covered by the CRC: base offset, length, leader epoch."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_NO_HEADER = bytes(HEADER_SIZE)
_LEGACY_TAIL = struct.Struct(">Ibbq")


class BatchCorrupt(Exception):
    """Bytes that are not a batch: a length below the format's minimum, an unknown magic, a wrong CRC."""


class BatchHeader:
    """One batch's header. Offsets are absolute, timestamps in ms. The size in bytes includes the 12 bytes that the
    length field does not include.

    For magic 0 and 1, base_offset is the field's value (the *last* offset if compressed). Epoch, producer and sequence
    fields are -1. record_count is -1 if it is known only after decompression.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    def __init__(
        self,
        position: int,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp_ms: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.position = position
        self.base_offset = base_offset
        self.size = length + LOG_OVERHEAD
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int:
        """-1 unless compaction has set one. It is stored in the base timestamp field."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. -1 without a sequence. It wraps from 2**31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position. All its bytes must be in the buffer (61 for magic 2, the message's beginning for older
    formats).

    Raises BatchCorrupt for a length or magic that no format has, and struct.error if the buffer ends too early.
    """
    magic = buffer[position + MAGIC_POSITION]
    if magic == 2:
        header = BatchHeader(position, *HEADER.unpack_from(buffer, position))
        if header.size < HEADER_SIZE:
            raise BatchCorrupt(f"a batch of {header.size} bytes is shorter than its header")
        return header
    if magic > 2:
        raise BatchCorrupt(f"magic {magic} is none of 0, 1, 2")
    offset, length = OFFSET_AND_LENGTH.unpack_from(buffer, position)
    if length < LEGACY_MINIMUM_LENGTH + (8 if magic else 0):
        raise BatchCorrupt(f"a message of {length} bytes is shorter than its header")
    if magic == 1:
        crc, _, attributes, timestamp_ms = _LEGACY_TAIL.unpack_from(buffer, position + LOG_OVERHEAD)
    else:
        crc = _UINT32.unpack_from(buffer, position + LOG_OVERHEAD)[0]
        attributes, timestamp_ms = buffer[position + CRC_POSITION], NO_TIMESTAMP
    count = -1 if attributes & CODEC_MASK else 1
    attributes &= CODEC_MASK | LOG_APPEND_TIME_BIT
    return BatchHeader(
        position, offset, length, -1, magic, crc, attributes, 0, timestamp_ms, timestamp_ms, -1, -1, -1, count
    )


def iterate_batches(buffer: Buffer) -> Iterator[BatchHeader]:
    """Headers of the complete batches in a buffer. An incomplete batch at the end is left out.

    Raises BatchCorrupt for an impossible length or magic.
    """
    position, end = 0, len(buffer)
    while end - position >= MINIMUM_PREFIX:
        length = _INT32.unpack_from(buffer, position + 8)[0]
        if length < LEGACY_MINIMUM_LENGTH:
            raise BatchCorrupt(f"a batch with the length {length}")
        if length + LOG_OVERHEAD > end - position:
            if buffer[position + MAGIC_POSITION] > 2:
                raise BatchCorrupt(f"magic {buffer[position + MAGIC_POSITION]} is none of 0, 1, 2")
            return
        if buffer[position + MAGIC_POSITION] == 2 and length + LOG_OVERHEAD < HEADER_SIZE:
            raise BatchCorrupt(f"a batch of {length + LOG_OVERHEAD} bytes is shorter than its header")
        yield parse_header(buffer, position)
        position += length + LOG_OVERHEAD


def end_of_some(buffer: Buffer, start: int, most: int) -> tuple[int, int, int]:
    """(end of the next `most` batches from `start`, start of the last of them, their number), found by their lengths
    alone.

    The end of the buffer if fewer are left, or if the next bytes are not a complete batch.
    """
    position, end = start, len(buffer)
    last = start
    for count in range(most):
        if end - position < MINIMUM_PREFIX:
            return end, last, count
        size = _INT32.unpack_from(buffer, position + 8)[0] + LOG_OVERHEAD
        if size < LEGACY_MINIMUM_LENGTH + LOG_OVERHEAD or size > end - position:
            return end, last, count
        last = position
        position += size
    return position, last, most


def is_one_batch(records: Buffer, size: int) -> bool:
    """Whether a batch ends where the records end, by its length alone. `size`: of the records."""
    return size >= HEADER_SIZE and _INT32.unpack_from(records, 8)[0] == size - LOG_OVERHEAD


def crc_of(batch: Buffer) -> int:
    """CRC-32C over the bytes from the attributes on. `batch` is exactly one batch of magic 2."""
    return int(crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


def has_valid_crc(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the bytes of exactly this batch match its CRC, in any of the three formats."""
    if header.magic == 2:
        return crc_of(batch) == header.crc
    import zlib

    return zlib.crc32(memoryview(batch)[MAGIC_POSITION:]) == header.crc


def stamp_offset_and_epoch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the leader's fields. `batch` is exactly one batch."""
    STAMP.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)


def stamp_timestamp(batch: bytearray | memoryview, *, log_append_time: bool, max_timestamp_ms: int) -> None:
    """Set the timestamp type, the max timestamp, and the CRC over them."""
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_POSITION)[0]
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    else:
        attributes &= ~LOG_APPEND_TIME_BIT
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _UINT32.pack_into(batch, CRC_POSITION, crc_of(batch))


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    compression: int = 0,
    level: int | None = None,
    before: Buffer = b"",
) -> bytearray:
    """A batch of magic 2. Record timestamps are absolute, in ms. Each record has its own offset delta.

    log_append_time_ms sets the max timestamp and the timestamp type bit. `before`: encoded records with the first offset
    deltas and no timestamp delta, which come before the others. Raises ValueError for no records.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp_ms = records[0].timestamp_ms
    body: bytes | bytearray = encode_records(records, base_timestamp_ms)
    if before:
        body = b"".join((before, body))
    if compression:
        body = codecs.compress(compression, body, level)
    attributes = compression
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    max_timestamp_ms = max(record.timestamp_ms for record in records)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp_ms = log_append_time_ms
    return assemble(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=records[-1].offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=records[-1].offset_delta + 1 if before else len(records),
    )


def build_plain_batch(
    pairs: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int, base_sequence: int = NO_SEQUENCE
) -> bytearray:
    """`build_batch` of keys and values without headers, all with one timestamp. Most are short, and cost less here."""
    body = bytearray()
    for delta, (key, value) in enumerate(pairs):
        record = None if value is None else plain_record(delta, key, value)
        body += encode_records((Record(delta, 0, key, value),), 0) if record is None else record
    return build_run_batch(body, len(pairs), timestamp_ms, base_sequence)


def build_run_batch(
    body: Buffer, count: int, timestamp_ms: int, base_sequence: int = NO_SEQUENCE, compression: int = 0
) -> bytearray:
    """A batch of encoded records with offset deltas from 0 on and without timestamp deltas."""
    if compression:
        body = codecs.compress(compression, bytes(body), None)
    return assemble(
        body,
        base_offset=0,
        leader_epoch=-1,
        attributes=compression,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=base_sequence,
        record_count=count,
    )


def assemble(
    body: Buffer | list[bytes],
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """One batch from an encoded (and possibly compressed) body, given in one or several pieces, with header and CRC."""
    batch = bytearray().join([_NO_HEADER, *body] if isinstance(body, list) else (_NO_HEADER, body))
    seal(
        batch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return batch


def seal(
    batch: bytearray,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write header and CRC of a batch whose body is in place."""
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _UINT32.pack_into(batch, CRC_POSITION, crc_of(batch))


class ValidatedBatch:
    """A batch that is ready to be appended, with everything the log needs, so that no byte is parsed again.

    `buffer` is exactly the batch and writable: the log stamps base offset and leader epoch into it.
    """

    __slots__ = (
        "base_sequence",
        "buffer",
        "compression",
        "is_control",
        "is_transactional",
        "last_offset_delta",
        "log_append_time",
        "max_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    def __init__(
        self,
        buffer: bytearray | memoryview,
        attributes: int,
        last_offset_delta: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.buffer = buffer
        self.is_transactional = attributes & TRANSACTIONAL_BIT != 0
        self.is_control = attributes & CONTROL_BIT != 0
        self.log_append_time = attributes & LOG_APPEND_TIME_BIT != 0
        self.compression = attributes & CODEC_MASK
        self.last_offset_delta = last_offset_delta
        self.max_timestamp_ms = max_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count
        self.size = len(buffer)

    @classmethod
    def of(cls, buffer: bytearray | memoryview, header: BatchHeader) -> ValidatedBatch:
        return cls(
            buffer,
            header.attributes,
            header.last_offset_delta,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )


def trusted_batch(buffer: bytearray) -> ValidatedBatch:
    """A batch built here (build_batch, control markers). Nothing is checked."""
    return ValidatedBatch.of(buffer, parse_header(buffer))
