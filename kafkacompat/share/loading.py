"""What the persister has kept of a share-partition, when a new leader takes over."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.api.share_services import StateBatch
from kafkacompat.share import start_offset
from kafkacompat.share.in_flight import ARCHIVING, InFlightBatch, InFlightRecords, Run
from kafkacompat.share.transitions import cause_of
from kafkacompat.share.values import RecordState


class InvalidState(Exception):
    """The persisted state contradicts itself."""


def load(
    records: InFlightRecords, first_offset: int, batches: Sequence[StateBatch], delivery_count_limit: int
) -> None:
    """Begin at the start offset with the batches. What lies between them is acquired first, if the log has it.

    Dead letters that an earlier leader had not finished are written again.
    """
    records.start_offset = first_offset
    expected = first_offset
    gap_start = None
    for first, last, state_id, delivery_count in batches:
        if first < first_offset or last < first:
            raise InvalidState
        if state_id not in _STATES:
            raise InvalidState(f"Unknown record state id: {state_id}")
        if gap_start is None and first > expected:
            gap_start = expected
        expected = last + 1
        run = Run(first, last, _STATES[state_id], delivery_count)
        records.add(InFlightBatch(run))
        if run.is_terminal():
            records.delivery_complete_count += last - first + 1
        elif run.state is ARCHIVING:
            records.bury(run, cause_of(run, delivery_count_limit))
    if not records.batches:
        records.end_offset = first_offset
        return
    records.find_next_fetch_offset = True
    records.end_offset = records.batches[-1].last
    if gap_start is not None:
        records.gap_start = gap_start
        records.gap_end = records.end_offset
    start_offset.advance(records)


_STATES = {int(state): state for state in RecordState}
