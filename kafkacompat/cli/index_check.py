"""Checks a segment's indexes against its log, like the sanity checks of DumpLogSegments.

Pure: bytes in, findings out. The comparison with the log finds more errors than a check of the order of entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kafkacompat.log.index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    TXN_ENTRY_SIZE,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from kafkacompat.ports import Buffer
from kafkacompat.records.batch import BatchCorrupt, iterate_batches

Ends = dict[int, int]


def segment_outline(log: Buffer) -> tuple[Ends, dict[int, int]]:
    """Return (batch position -> last offset, last offset of each batch -> largest timestamp up to it)."""
    ends: Ends = {}
    latest: dict[int, int] = {}
    timestamp_ms = -1
    try:
        for header in iterate_batches(log):
            ends[header.position] = header.last_offset
            timestamp_ms = max(timestamp_ms, header.max_timestamp_ms)
            latest[header.last_offset] = timestamp_ms
    except (BatchCorrupt, struct.error):
        # The batches before the damage can still be compared. The dump of the log reports the damage.
        pass
    return ends, latest


def check_offset_index(base_offset: int, data: bytes, ends: Ends) -> Iterator[str]:
    """Yield one line for each entry that is out of order or that matches no batch's position and last offset."""
    if len(data) % OFFSET_ENTRY_SIZE:
        yield f"{len(data)} bytes are not whole entries of {OFFSET_ENTRY_SIZE}"
        return
    index = OffsetIndex(base_offset, data)
    begins = {offset: position for position, offset in ends.items()}
    before = (base_offset - 1, -1)
    for number in range(len(index)):
        offset, position = index.entry(number)
        following = index.entry(number + 1)[1] if number + 1 < len(index) else 0
        if number and offset == base_offset:
            return  # Kafka preallocates index files with zeros
        if offset <= before[0] or position <= before[1]:
            yield f"entry {number} (offset {offset}, position {position}) is not after the one before it"
        if position not in ends:
            yield f"entry {number} (offset {offset}): no batch begins at position {position}"
        elif not position <= begins.get(offset, -1) < (following or max(ends) + 1):
            # Kafka before 3.9 has one entry for the batches of an append: where the first begins, and where the last ends.
            yield f"entry {number}: the batch at position {position} ends at offset {ends[position]}, not {offset}"
        before = (offset, position)


def check_time_index(base_offset: int, data: bytes, latest: dict[int, int]) -> Iterator[str]:
    """Yield one line for each entry that is out of order or whose timestamp is not the largest up to its offset."""
    if len(data) % TIME_ENTRY_SIZE:
        yield f"{len(data)} bytes are not whole entries of {TIME_ENTRY_SIZE}"
        return
    index = TimeIndex(base_offset, data)
    ordered = sorted(latest)
    before = (-1, base_offset - 1)
    for number in range(len(index)):
        timestamp_ms, offset = index.entry(number)
        if number and timestamp_ms == 0 and offset == base_offset:
            return
        if timestamp_ms < before[0] or offset < before[1]:
            yield f"entry {number} (timestamp {timestamp_ms}, offset {offset}) is before the one before it"
        if not ordered or offset > ordered[-1]:
            yield f"entry {number} (timestamp {timestamp_ms}): the log has no offset {offset}"
        elif timestamp_ms > latest[ordered[-1]]:
            yield f"entry {number} (offset {offset}): no batch has a timestamp as late as {timestamp_ms}"
        before = (timestamp_ms, offset)


def check_transaction_index(base_offset: int, data: bytes) -> Iterator[str]:
    if len(data) % TXN_ENTRY_SIZE:
        yield f"{len(data)} bytes are not whole entries of {TXN_ENTRY_SIZE}"
        return
    try:
        TransactionIndex(base_offset, data).check()
    except IndexCorrupt as error:
        yield str(error)
