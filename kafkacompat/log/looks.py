"""Reads the age of closed segments in a worker thread, once per segment and a few bytes each.

Retention and the cleaner use the results. Of each index only the last entry is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.log.index import IndexCorrupt
from kafkacompat.log.log_segment import LOG_SUFFIX, LogSegment
from kafkacompat.log.segment_indexes import last_time_entry

if TYPE_CHECKING:
    from kafkacompat.ports import Disk


class _Seen(NamedTuple):
    segment: LogSegment
    timestamp_ms: int
    offset: int
    modified_ms: int


class SegmentsLook:
    """`run` blocks and changes nothing of the loop's. `finish` runs in the loop's thread."""

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
                age_ms = self._look(segment)
            except (IndexCorrupt, FileNotFoundError):
                if self._disk.exists(segment.stem + LOG_SUFFIX):
                    self.damaged = segment
                return
            except OSError as error:
                self.error = error
                return
            if self._enough(age_ms):
                return

    def _look(self, segment: LogSegment) -> int:
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
