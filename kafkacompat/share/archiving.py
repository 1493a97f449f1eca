"""Records that the log no longer has, or that nobody may see, are archived. The persister learns it with the start offset."""

from __future__ import annotations

from kafkacompat.share.in_flight import ACQUIRED, AVAILABLE, InFlightBatch, InFlightRecords
from kafkacompat.share.values import RecordState


def follow_log_start(records: InFlightRecords, log_start_offset: int) -> None:
    """The log has lost its records below the offset. What members hold of them is archived when it is released."""
    if log_start_offset <= records.start_offset:
        return
    records.wakeup = True
    if not records.batches:
        records.start_offset = records.end_offset = log_start_offset
        records.delivery_complete_count = 0
        return
    lost = _count_terminal(records, log_start_offset)
    for batch in records.batches:
        if batch.first >= log_start_offset:
            break
        if _archive(batch, records.start_offset, log_start_offset - 1, AVAILABLE):
            records.find_next_fetch_offset = True
    records.start_offset = log_start_offset
    records.delivery_complete_count -= lost
    records.end_offset = max(records.end_offset, log_start_offset)
    if records.gap_start is not None:
        records.gap_start = max(records.gap_start, log_start_offset)


def archive_stale(records: InFlightRecords, fetch_offset: int, base_offset: int) -> None:
    """A read from `fetch_offset` found its first batch at `base_offset`: compaction has removed what was between."""
    if not records.batches or fetch_offset >= base_offset:
        return
    for batch in records.from_floor(fetch_offset, base_offset - 1):
        if batch.last >= fetch_offset:
            archived = _archive(batch, fetch_offset, base_offset - 1, AVAILABLE)
            records.delivery_complete_count += archived
            if archived:
                records.find_next_fetch_offset = True


def archive_acquired(records: InFlightRecords, first: int, last: int) -> None:
    """The offsets belong to an aborted transaction."""
    for batch in records.from_floor(first, last):
        if batch.last >= first:
            records.delivery_complete_count += _archive(batch, first, last, ACQUIRED)


def _archive(batch: InFlightBatch, first: int, last: int, state: RecordState) -> int:
    """Archive what has the state between the offsets, and return how many records that are."""
    if not batch.per_offset:
        run = batch.whole
        if run.state is not state:
            return 0
        if first <= batch.first and batch.last <= last:
            run.archive()
            return batch.size
        batch.per_offset = True
    archived = 0
    for run in batch.carve(first, last):
        if run.state is state:
            run.archive()
            archived += run.last - run.first + 1
    batch.join(first, last)
    return archived


def _count_terminal(records: InFlightRecords, before: int) -> int:
    """How many records will fall below the start offset that are terminal."""
    count = 0
    for batch in records.batches:
        if batch.first >= before:
            break
        for run in batch.runs:
            if run.is_terminal():
                count += records.count_between(run.first, min(run.last, before - 1))
    return count
