"""Reads the records of any batch, in every format and codec. For lookups, replay and dumps, not for the hot path.

It yields (offset, record) pairs. A batch in a log may never have been checked against the bounds of Produce, so
records are created one by one, with a bounded number of headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import HEADER_SIZE, BatchHeader
from kafkacompat.records.record import Record
from kafkacompat.records.scan import walk_records

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

HEADERS_SHOWN = 10_000
"""The most headers of one record. One more entry then tells how many were left out."""
FIRST_RECORD_BYTES = 64 * 1024
"""Bytes decompressed to find a batch's first record. A control record has some tens of bytes."""


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


def contents_of(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, Record]]:
    """Like `records_of`, without the headers, of which there may be millions."""
    return records_of(batch, header, 0)


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
