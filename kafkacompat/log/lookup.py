"""Finding offsets by timestamp, and aborted transactions: the rare lookups that open batches.

Duty: read-only searches over segments. Must not know: bounds that requests set. Follows KIP-79, KIP-734 (max timestamp).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacompat.ports import AbortedTransaction, TimestampOffset
from kafkacompat.records.read import records_of

if TYPE_CHECKING:
    from kafkacompat.log.segment import Segment
    from kafkacompat.log.segment_list import SegmentList


def offset_for_timestamp(
    segments: Iterable[Segment], timestamp_ms: int, log_start_offset: int
) -> TimestampOffset | None:
    """The first record at or after a timestamp and at or above the log's start; None when there is none."""
    for segment in segments:
        if segment.largest_timestamp()[0] < timestamp_ms:
            continue
        # The index entry's timestamp is at most the target, so no earlier batch can hold the record.
        indexed = segment.time_index.lookup(timestamp_ms)
        start = segment.position_before(max(indexed, log_start_offset))
        for header in segment.headers(start):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < log_start_offset:
                continue
            for offset, record in records_of(segment.read_batch(header), header):
                if record.timestamp_ms >= timestamp_ms and offset >= log_start_offset:
                    return TimestampOffset(record.timestamp_ms, offset, header.leader_epoch)
    return None


def offset_of_max_timestamp(segments: Iterable[Segment]) -> TimestampOffset | None:
    """The first record that carries the largest timestamp of the log; None when no record has one."""
    best: Segment | None = None
    best_timestamp_ms = -1
    for segment in segments:
        timestamp_ms = segment.largest_timestamp()[0]
        if timestamp_ms > best_timestamp_ms:
            best, best_timestamp_ms = segment, timestamp_ms
    if best is None:
        return None
    return offset_for_timestamp([best], best_timestamp_ms, best.base_offset)


def aborted_transactions(
    segments: SegmentList, fetch_offset: int, upper_bound_offset: int
) -> list[AbortedTransaction]:
    """Those whose range overlaps [fetch offset, upper bound), by first offset (consumers rely on the order)."""
    found = segments.aborted(fetch_offset, upper_bound_offset)
    found.sort(key=lambda entry: (entry.first_offset, entry.last_offset))
    return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]
