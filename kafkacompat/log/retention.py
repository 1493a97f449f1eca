"""Which segments a log may let go: by time, by size, by log start offset.

Duty: the decision, pure. Must not know: files. Never a segment that holds records at or above the high watermark, and
only from the oldest on. Follows retention.ms, retention.bytes and KIP-107 (DeleteRecords).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What retention looks at. `next_offset` is the base of the following segment, or the log's end for the last."""

    size: int
    next_offset: int
    largest_timestamp_ms: int
    """NEVER_OLD where it is not known."""
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
    """How many of the oldest segments go, of those that are given. -1 turns a limit off. All may go; the caller then begins an
    empty one. No more is asked for than the first that stays.

    An empty last segment never goes: nothing would be gained.
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
