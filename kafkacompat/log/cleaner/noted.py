"""The positions of batches in mapped segments, so that batches without any kept record need not be read again.

It notes offset and position of each batch of a segment, within a bound, and returns the parts of the file that must be
read. The caller decides which records are kept. It is only for segments without transactional batches, because those
must be read in order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.job import SegmentFile

NOTED_BATCHES_MOST = 200_000
"""The bound, at 16 bytes each. Segments beyond it are read whole."""
GAP_BYTES = 32 * 1024
"""A gap of up to this many bytes is read rather than skipped."""

Places = Sequence[tuple[int, int]]
"""(first byte of a batch, end of the last batch) of each part, ascending."""


class Note:
    """One segment's batches in order."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def batch(self, base_offset: int, position: int) -> None:
        self.offsets.append(base_offset)
        self.positions.append(position)


class NotedSegments:
    __slots__ = ("_notes", "_room")

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._room = NOTED_BATCHES_MOST

    def begin(self) -> Note:
        return Note()

    def add(self, base_offset: int, note: Note) -> None:
        """Keep the notes of the segment at a base offset. None of its batches may be transactional."""
        if len(note.offsets) <= self._room:
            self._room -= len(note.offsets)
            self._notes[base_offset] = note

    def places(
        self, segment: SegmentFile, stays: Callable[[int, int], bool], last_offsets: Sequence[int]
    ) -> Places | None:
        """The parts of a segment to read. `stays` tells whether a record between two offsets is kept. A batch that
        contains one of the ascending `last_offsets` is read too. None if the segment was not noted."""
        note = self._notes.get(segment.base_offset)
        if note is None:
            return None
        offsets = note.offsets
        bounds = [*offsets, segment.end_offset]
        worth = [stays(first, end - 1) for first, end in pairwise(bounds)]
        for last_offset in last_offsets:
            at = bisect_right(offsets, last_offset) - 1
            if at >= 0 and last_offset < segment.end_offset:
                worth[at] = True
        found: list[tuple[int, int]] = []
        for (start, end), is_worth in zip(pairwise([*note.positions, segment.size]), worth, strict=True):
            if is_worth:
                if found and start - found[-1][1] < GAP_BYTES:
                    start = found.pop()[0]
                found.append((start, end))
        return found
