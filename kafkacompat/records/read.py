"""Reads the records of any batch, in every format and codec. For lookups, replay and dumps, not for the hot path.

It yields (offset, record) pairs. A batch in a log may never have been checked against the bounds of Produce, so
records are created one by one, with a bounded number of headers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import HEADER_SIZE, BatchHeader
from kafkacompat.records.record import Record, RecordMalformed, as_long
from kafkacompat.records.scan import find, walk_records

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

HEADERS_SHOWN = 10_000
"""The most headers of one record. One more entry then tells how many were left out."""
FIRST_RECORD_BYTES = 64 * 1024
"""Bytes decompressed to find a batch's first record. A control record has some tens of bytes."""

FOUND_AT_ONCE = 4096
"""Records of a call of `find`: two milliseconds in Python."""
LEGACY_AT_ONCE = 64
LEGACY_COST = 8
"""A message of an old format becomes an object."""
UNPACKED_AT_ONCE = 128 * 1024
BYTES_A_UNIT = 16
LEAST_DELTA, GREATEST_DELTA = -(1 << 63), (1 << 63) - 1


def records_of(
    batch: Buffer, header: BatchHeader, headers_most: int = HEADERS_SHOWN
) -> Iterator[tuple[int, Record]]:
    """(absolute offset, record) of exactly one batch. With LogAppendTime every record has the batch's timestamp.

    Raises RecordMalformed or DecompressionFailed if the batch cannot be opened.
    """
    if header.magic != 2:
        from kafkacompat.records.legacy import iterate_legacy

        yield from iterate_legacy(batch, header)
        return
    body = codecs.unpack(header.codec, memoryview(batch)[HEADER_SIZE:])
    base = header.base_offset
    is_stamped = header.is_log_append_time
    for record in walk_records(body, header.record_count, header.base_timestamp_ms, headers_most):
        if is_stamped:
            record = record._replace(timestamp_ms=header.max_timestamp_ms)
        yield base + record.offset_delta, record


def find_by_time(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, least_offset: int
) -> Generator[int, None, tuple[int, int] | None]:
    """(timestamp, offset) of the first record of exactly one batch at or after a timestamp and at or above an offset, or
    None. No records are created.

    Yields between pieces, with their cost: about the number of records looked at, and sixteenths of the bytes
    decompressed. Raises like `records_of`.
    """
    if header.magic != 2:
        from kafkacompat.records.legacy import iterate_legacy

        for count, (offset, record) in enumerate(iterate_legacy(batch, header), 1):
            if record.timestamp_ms >= timestamp_ms and offset >= least_offset:
                return record.timestamp_ms, offset
            if not count % LEGACY_AT_ONCE:
                yield LEGACY_AT_ONCE * LEGACY_COST
        return None
    body: Buffer = memoryview(batch)[HEADER_SIZE:]
    if header.codec:
        unpacking = codecs.Unpacking(header.codec, body, codecs.UNPACKED_BYTES_MAX, codecs.FRAMES_MAX)
        while not unpacking.go_on(UNPACKED_AT_ONCE):
            yield UNPACKED_AT_ONCE // BYTES_A_UNIT
        body = unpacking.body
    base_ms, base_offset = header.base_timestamp_ms, header.base_offset
    is_stamped = header.is_log_append_time
    least_delta = LEAST_DELTA if is_stamped else max(timestamp_ms - base_ms, LEAST_DELTA)
    if least_delta > GREATEST_DELTA or (is_stamped and header.max_timestamp_ms < timestamp_ms):
        return None
    position, left = 0, header.record_count
    while left > 0:
        position, count, found = find(
            body,
            position,
            len(body),
            min(left, FOUND_AT_ONCE),
            least_delta,
            max(least_offset - base_offset, 0),
        )
        if found is not None:
            found_ms = header.max_timestamp_ms if is_stamped else as_long(base_ms + found[0])
            return found_ms, base_offset + found[1]
        left -= count
        yield count
    if position != len(body):
        raise RecordMalformed(f"{len(body) - position} bytes after the last record")
    return None


def first_record(batch: Buffer, header: BatchHeader) -> Record | None:
    """The first record of a batch of magic 2, without its headers. The rest is not opened. None if the batch is empty.

    Raises like `records_of`.
    """
    if header.record_count <= 0:
        return None
    body = codecs.unpack_beginning(header.codec, memoryview(batch)[HEADER_SIZE:], FIRST_RECORD_BYTES)
    for record in walk_records(body, header.record_count, header.base_timestamp_ms, 0):
        return record
    return None
