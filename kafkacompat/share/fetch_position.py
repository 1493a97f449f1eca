"""Where a share-partition is to be read next, and how much of it may be acquired."""

from __future__ import annotations

from kafkacompat.share import start_offset
from kafkacompat.share.in_flight import InFlightRecords


def next_fetch_offset(records: InFlightRecords) -> int:
    """The first acquirable offset in flight, or else the one after the end."""
    batches = records.batches
    if not batches or records.start_offset > batches[-1].last:
        records.find_next_fetch_offset = False
        return records.end_offset
    if not records.find_next_fetch_offset:
        return records.end_offset + 1
    offset = _first_acquirable(records)
    if offset is None:
        records.find_next_fetch_offset = False
        return records.end_offset + 1
    return offset


def _first_acquirable(records: InFlightRecords) -> int | None:
    """Each fetch that waits asks for it at each change, and thousands of records may be in flight."""
    if records.has_gaps():
        return _first_acquirable_or_gap(records)
    batches, searched = records.batches, records.nothing_before
    for index in range(max(records.floor(searched), 0), len(batches)):
        batch = batches[index]
        for at in range(batch.index_of(searched), len(batch.runs)):
            run = batch.runs[at]
            if run.is_acquirable():
                records.nothing_before = run.first
                return run.first
    return None


def _first_acquirable_or_gap(records: InFlightRecords) -> int | None:
    gap_start = records.gap_start
    for batch in records.batches:
        if gap_start is not None:
            if batch.first > gap_start:
                return gap_start
            gap_start = max(batch.last + 1, gap_start)
        for run in batch.runs:
            if run.is_acquirable():
                return run.first
    return None


def can_acquire(records: InFlightRecords, max_record_locks: int) -> bool:
    if next_fetch_offset(records) != records.end_offset + 1 or records.count() < max_record_locks:
        return True
    # The start offset may be held back although nothing is acquirable, and nobody would ever move it. Records that were
    # archived while they were acquired get no acknowledgement, and gaps of the persisted state count until more is acquired.
    records.gap_start = None
    return start_offset.advance(records) and records.count() < max_record_locks


def room(
    records: InFlightRecords, fetch_offset: int, max_records: int, last_offset: int, max_record_locks: int
) -> tuple[int, int]:
    """The last offset to acquire and the maximum number of records, for a read that ends at `last_offset`.

    When as many records are in flight as may be, only those are acquired that are in flight already.
    """
    most = min(max_records, max_record_locks - records.count())
    if most > 0 or fetch_offset > records.end_offset:
        return last_offset, most
    return min(last_offset, records.end_offset), min(max_records, records.end_offset - fetch_offset + 1)
