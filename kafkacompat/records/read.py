"""Records of any batch, whatever its format and codec: for lookups, replay and dumps, not for the hot path.

Duty: open a batch and give (offset, record). Must not know: where the batch lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import HEADER_SIZE, BatchHeader
from kafkacompat.records.record import Record, iterate_records

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer


def records_of(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, Record]]:
    """(absolute offset, record) of exactly one batch. With LogAppendTime every record has the batch's timestamp.

    RecordMalformed or DecompressionFailed when it cannot be opened.
    """
    if header.magic != 2:
        from kafkacompat.records.legacy import iterate_legacy

        yield from iterate_legacy(batch, header)
        return
    body = codecs.decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
    base = header.base_offset
    for record in iterate_records(body, header.record_count, header.base_timestamp_ms):
        if header.is_log_append_time:
            record = record._replace(timestamp_ms=header.max_timestamp_ms)
        yield base + record.offset_delta, record
