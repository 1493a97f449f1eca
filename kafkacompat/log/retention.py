"""Which segments retention may delete: by time, by size, by log start offset.

A pure decision. It deletes from the oldest segment on, and never a segment with records at or above the high
watermark. Follows retention.ms, retention.bytes and KIP-107 (DeleteRecords).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """The facts of one segment. `next_offset` is the base of the next segment, or the log's end for the last one."""

    size: int
    next_offset: int
    largest_timestamp_ms: int
    """NEVER_OLD if unknown."""
    is_last: bool


NEVER_OLD = (1 << 63) - 1


def count_deletable(
    segments: Iterable[SegmentFacts],
    *,
    total_bytes: int,
    high_watermark: int,
    log_start_offset: int,
    delete_policy: bool,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
) -> int:
    """The number of the oldest segments to delete. A limit of -1 is off. If all are deleted, the caller begins an
    empty segment. `segments` is read only up to the first one that stays.

    An empty last segment always stays, since deleting it gains nothing.
    """
    count = 0
    surplus = total_bytes - retention_bytes
    for segment in segments:
        if segment.next_offset > high_watermark or (segment.is_last and not segment.size):
            break
        if segment.next_offset <= log_start_offset and not segment.is_last:
            reason = True
        elif not delete_policy:
            reason = False
        else:
            by_time = 0 <= retention_ms < now_ms - segment.largest_timestamp_ms
            by_size = retention_bytes >= 0 and surplus >= segment.size
            reason = by_time or by_size
        if not reason:
            break
        surplus -= segment.size
        count += 1
    return count
