"""The start offset of a share-partition: it moves over records that are acknowledged or archived."""

from __future__ import annotations

from kafkacompat.share.in_flight import InFlightRecords


def advance(records: InFlightRecords) -> bool:
    """Move the start offset as far as it goes, and forget whole batches below it. Return whether anything changed."""
    if not _starts_with_terminal(records):
        return False
    whole, last_terminal, terminal_count = _terminal_front(records)
    if last_terminal is None:
        return False
    batches = records.batches
    if whole == len(batches):
        records.start_offset = max(records.start_offset, last_terminal + 1)
        records.end_offset = records.start_offset
        records.remove_first(whole)
        records.delivery_complete_count = 0
        records.wakeup = True
        return True
    start = last_terminal + 1
    if whole and last_terminal == batches[whole - 1].last:
        # What the log does not have between two batches is passed over, but not what an earlier leader has delivered.
        start = batches[whole].first
        if records.gap_start is not None and records.has_gaps():
            start = min(start, records.gap_start)
    records.start_offset = max(records.start_offset, start)
    records.delivery_complete_count -= terminal_count
    records.remove_first(whole)
    records.wakeup = True
    return True


def _starts_with_terminal(records: InFlightRecords) -> bool:
    if not records.batches:
        return False
    index = records.floor(records.start_offset)
    if index < 0:
        if records.has_gaps():
            return False
        # Nothing is fetched below the first batch any more, so the log has no records there.
        index = 0
    batch = records.batches[index]
    run = batch.runs[batch.index_of(min(records.start_offset, batch.last))]
    return run.transition is None and run.is_terminal()


def _terminal_front(records: InFlightRecords) -> tuple[int, int | None, int]:
    """How many batches are terminal as a whole before the first other record; the last offset before that record; and how
    many records these are that have not fallen below the start offset."""
    last_terminal = None
    count = 0
    gap_start = records.gap_start if records.has_gaps() else None
    for index, batch in enumerate(records.batches):
        if gap_start is not None and batch.last >= gap_start:
            return index, last_terminal, count
        for run in batch.runs:
            if run.transition is not None or not run.is_terminal():
                return index, last_terminal, count
            last_terminal = run.last
            count += records.count_between(run.first, run.last)
    return len(records.batches), last_terminal, count
