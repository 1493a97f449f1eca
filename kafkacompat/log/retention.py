"""Which segments a log may let go: by time, by size, by log start offset.

Duty: the decision, pure. Must not know: files. Never a segment that holds records at or above the high watermark, and
only from the oldest on. Follows retention.ms, retention.bytes and KIP-107 (DeleteRecords).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What retention looks at. `next_offset` is the base of the following segment, or the log's end for the last."""

    size: int
    next_offset: int
    largest_timestamp_ms: int


def count_deletable(
    segments: Sequence[SegmentFacts],
    *,
    high_watermark: int,
    log_start_offset: int,
    delete_policy: bool,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments go. -1 turns a limit off. All may go; the caller then begins an empty one.

    An empty last segment never goes: nothing would be gained.
    """
    count = 0
    surplus = sum(segment.size for segment in segments) - retention_bytes
    for at, segment in enumerate(segments):
        if segment.next_offset > high_watermark or (at == len(segments) - 1 and not segment.size):
            break
        if segment.next_offset <= log_start_offset and at < len(segments) - 1:
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
