"""What a cleaning is told: which segments, up to which offset, by which settings. Plain values, fit to cross a thread.

Duty: the values. Must not know: how they came about, what is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.log.index import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.filtering import LastRecord
    from kafkacompat.log.transaction_index import AbortedTxn


GROUPED_AT_ONCE = 16
"""Segments of a group: one step of the loop renames all their files. A later cleaning joins what is still small."""


class SegmentFile(NamedTuple):
    """A closed segment. `end_offset` is the base of the next one."""

    stem: str
    base_offset: int
    end_offset: int
    size: int


class CleanerLimits(NamedTuple):
    """Of one thread. Kafka's log.cleaner.dedupe.buffer.size and io.buffer.size are divided by the threads."""

    map_bytes: int
    load_factor: float
    io_bytes: int


class CleaningJob(NamedTuple):
    """Offsets absolute, sizes in bytes."""

    directory: str
    segments: Sequence[SegmentFile]
    """From the log's first to the last that ends at or below `round_end_offset`."""
    first_dirty_offset: int
    round_end_offset: int
    """Base of the first segment that is not cleaned."""
    later_segments: Sequence[SegmentFile]
    """Closed ones after those: the markers of transactions that are cleaned may lie there."""
    aborted: Sequence[AbortedTxn]
    """Of transactions that end in the active segment, whose index is still written to."""
    last_records: dict[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    limits: CleanerLimits


def group_segments(
    segments: Sequence[SegmentFile],
    index_sizes: Sequence[tuple[int, int]],
    *,
    segment_bytes: int,
    index_bytes: int,
) -> list[list[SegmentFile]]:
    """Neighbours that together fit into one segment, by size, indexes (bytes of the offset and the time index of each) and
    span of offsets. GROUPED_AT_ONCE at most.
    """
    groups: list[list[SegmentFile]] = []
    size = offsets = times = 0
    for segment, (offset_index, time_index) in zip(segments, index_sizes, strict=True):
        size += segment.size
        offsets += offset_index
        times += time_index
        if (
            groups
            and len(groups[-1]) < GROUPED_AT_ONCE
            and size <= segment_bytes
            and offsets <= index_bytes
            and times <= index_bytes
            and (
                not segment.size or segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, offsets, times = segment.size, offset_index, time_index
    return groups
