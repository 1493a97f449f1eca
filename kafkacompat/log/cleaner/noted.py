"""Where the batches of mapped segments lie, so that those of which nothing stays are not even read again.

Duty: offset and position of each batch of a segment, within a bound; which parts of its file are worth reading. Must not know: what
stays. Only for segments whose batches are all plain: what belongs to transactions must be met in its order.
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
"""Of 16 bytes each; segments behind those are read whole."""
GAP_BYTES = 32 * 1024
"""What is rather read than skipped."""

Places = Sequence[tuple[int, int]]
"""From the first byte of a batch to the last one's end, ascending."""


class Note:
    """One segment's batches, in their order."""

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
        """Every batch of the segment at that offset is plain and has been noted."""
        if len(note.offsets) <= self._room:
            self._room -= len(note.offsets)
            self._notes[base_offset] = note

    def places(
        self, segment: SegmentFile, stays: Callable[[int, int], bool], last_offsets: Sequence[int]
    ) -> Places | None:
        """Where something stays: `stays` tells it for the offsets from one to another, and each of the ascending `last_offsets`
        is a reason too. None when the segment was not noted."""
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
