"""Which segments retention may delete: by time, by size, by log start offset. Follows retention.ms, retention.bytes and KIP-107
(DeleteRecords).

`count_deletable` is a pure decision. It deletes from the oldest segment on, and never a segment with records at or above the
high watermark. SegmentAges reads the age of closed segments in a worker thread, once per segment and a few bytes each: of
each index only the last entry. The cleaner uses the ages too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.log.index import IndexCorrupt
from kafkacompat.log.log_segment import LOG_SUFFIX, LogSegment
from kafkacompat.log.segment_indexes import last_time_entry

if TYPE_CHECKING:
    from kafkacompat.ports import Disk


NEVER_OLD = (1 << 63) - 1


class SegmentFacts(NamedTuple):
    """The facts of one segment. `next_offset` is the base of the next segment, or the log's end for the last one."""

    size: int
    next_offset: int
    largest_timestamp_ms: int
    """NEVER_OLD if unknown."""
    is_last: bool


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


def count_tiered(segments: Iterable[SegmentFacts], highest_offset: int, log_start_offset: int) -> int:
    """The number of the oldest segments whose local copies may be deleted: they are in the remote storage, which has
    everything up to `highest_offset`, or they lie below the log start."""
    count = 0
    for segment in segments:
        is_copied = 0 < segment.next_offset <= highest_offset + 1
        is_below_start = segment.next_offset <= log_start_offset and not segment.is_last
        if not is_copied and not is_below_start:
            break
        count += 1
    return count


class _Seen(NamedTuple):
    segment: LogSegment
    timestamp_ms: int
    offset: int
    modified_ms: int


class SegmentAges:
    """Reads the ages of closed segments. `run` blocks and changes nothing of the loop's. `finish` runs in the loop's thread."""

    __slots__ = ("_disk", "_enough", "_seen", "_segments", "damaged", "error")

    def __init__(
        self, disk: Disk, segments: Sequence[LogSegment], enough: Callable[[int], bool] = lambda _: False
    ) -> None:
        """`enough` is called with the age of each segment in order and returns whether to stop. Any thread."""
        self._disk = disk
        self._segments = segments
        self._enough = enough
        self._seen: list[_Seen] = []
        self.damaged: LogSegment | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        for segment in self._segments:
            try:
                age_ms = self._age_ms(segment)
            except (IndexCorrupt, FileNotFoundError):
                if self._disk.exists(segment.stem + LOG_SUFFIX):
                    self.damaged = segment
                return
            except OSError as error:
                self.error = error
                return
            if self._enough(age_ms):
                return

    def _age_ms(self, segment: LogSegment) -> int:
        if segment.knows_its_age():
            return segment.retention_timestamp_ms()
        timestamp_ms, offset = last_time_entry(self._disk, segment.stem, segment.base_offset)
        modified_ms = -1
        if timestamp_ms < 0:
            modified_ms = self._disk.modified_ms(segment.stem + LOG_SUFFIX)
        self._seen.append(_Seen(segment, timestamp_ms, offset, modified_ms))
        return max(timestamp_ms, modified_ms)

    def finish(self) -> None:
        """Take over the ages. Raises the OSError of the reading. Raises LogRefused while the indexes of a needed
        segment are rebuilt."""
        for segment, timestamp_ms, offset, modified_ms in self._seen:
            segment.note_largest_timestamp(timestamp_ms, offset)
            segment.modified_ms = modified_ms
        if self.error is not None:
            raise self.error
        if self.damaged is not None:
            self.damaged.report_damage()
