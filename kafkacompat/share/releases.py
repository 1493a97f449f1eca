"""Records that members hold become available again: their session is over, or their locks have ended."""

from __future__ import annotations

from kafkacompat.share.dead_letters import DeadLetters
from kafkacompat.share.in_flight import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    InFlightBatch,
    InFlightRecords,
    Run,
)
from kafkacompat.share.transitions import EndedLocks, StateBatches, Transition, undeliverable
from kafkacompat.share.values import NO_MEMBER, ShareSettings


def release(records: InFlightRecords, member_id: str, transition: Transition) -> None:
    """Whatever the member holds. Below the start offset it is archived."""
    for batch in records.batches:
        if not any(run.state is ACQUIRED and run.member_id == member_id for run in batch.runs):
            continue
        _cut_at_start(records, batch)
        for run in batch.runs:
            if run.state is ACQUIRED and run.member_id == member_id:
                transition.start(batch, run, ARCHIVED if run.last < records.start_offset else AVAILABLE)
        batch.join(batch.first, batch.last)


def expire(records: InFlightRecords, now_ms: int, settings: ShareSettings) -> EndedLocks:
    """End the locks that are due. Returns what is to be written.

    A record with a pending transition is left alone: it becomes available if that is undone.
    """
    ended = EndedLocks(records)
    for batch in sorted(records.deadlines.due(now_ms), key=lambda each: each.first):
        if any(_is_expired(run, now_ms) for run in batch.runs):
            _cut_at_start(records, batch)
            for run in batch.runs:
                if _is_expired(run, now_ms):
                    _expire(records, run, settings)
                    ended.add(batch, run)
            batch.join(batch.first, batch.last)
        # What has a pending transition is queued again if that is undone.
        next_ms = min(
            (run.deadline_ms for run in batch.runs if run.state is ACQUIRED and run.deadline_ms is not None),
            default=None,
        )
        if next_ms is not None:
            records.deadlines.add(next_ms, batch)
    return ended


def _is_expired(run: Run, now_ms: int) -> bool:
    return run.state is ACQUIRED and run.deadline_ms is not None and run.deadline_ms <= now_ms


def _expire(records: InFlightRecords, run: Run, settings: ShareSettings) -> None:
    run.member_id = NO_MEMBER
    run.deadline_ms = None
    if run.last < records.start_offset:
        run.state = ARCHIVED
    elif run.delivery_count >= settings.delivery_count_limit:
        run.state = undeliverable(settings)
        records.archived_records += run.last - run.first + 1
    else:
        run.state = AVAILABLE
        records.became_acquirable()
    if run.state is ARCHIVED:
        records.delivery_complete_count += records.count_between(run.first, run.last)


def archive_dead_letters(records: InFlightRecords, letters: DeadLetters) -> StateBatches:
    """The dead letters are written, or given up. Returns what is to be written."""
    written = StateBatches()
    for batch in records.from_floor(letters.first_offset, letters.last_offset):
        if batch.last < letters.first_offset:
            continue
        # Neighbours of the same fate are one run, although each request has dead letters of its own.
        for run in batch.carve(letters.first_offset, letters.last_offset):
            if run.state is ARCHIVING and run.transition is None:
                run.state = ARCHIVED
                records.delivery_complete_count += records.count_between(run.first, run.last)
                written.add(batch, run)
        batch.join(letters.first_offset, letters.last_offset)
    return written


def _cut_at_start(records: InFlightRecords, batch: InFlightBatch) -> None:
    if records.begins_within(batch) and (batch.per_offset or batch.whole.state is ACQUIRED):
        batch.cut(records.start_offset)
        batch.per_offset = True
