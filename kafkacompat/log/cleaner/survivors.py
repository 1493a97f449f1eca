"""Which records of the mapped part stay: each key's last offset belongs to exactly one record, so offsets alone tell.

Duty: the offsets of an offset map in their order, asked for batch by batch. Must not know: keys, what is in a batch. A batch that
holds no key's last offset goes without being opened, and one that holds nothing else stays so; to look up every key once more would
take as long as making the map. A byte for each offset of the part where there is room for that, else two for each that stays, in
windows of 65,536.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

WINDOW_BITS = 16
WINDOW_MASK = (1 << WINDOW_BITS) - 1
TOMBSTONE_BATCHES_MOST = 100_000
"""As many batches with null values are remembered; those behind are opened to see."""


class Survivors:
    """`between` answers for offsets of `start` to `end`, both included: what the map was made of. Ask in ascending order: it is
    fastest so.
    """

    __slots__ = ("_marks", "_open_number", "_open_offsets", "_tombstones", "_windows", "end", "start")

    def __init__(
        self,
        offsets: Iterable[int],
        start: int,
        end: int,
        tombstone_batches: array[int],
        marks_most: int,
    ) -> None:
        """`offsets`: of the records that stay, in any order. `tombstone_batches`: the base offsets of batches that hold null
        values, ascending; those behind a full array are unknown. `marks_most`: bytes that there is room for.
        """
        self.start = start
        self.end = end
        self._marks: bytearray | None = None
        windows: dict[int, array[int]] = {}
        if end - start < marks_most:
            marks = self._marks = bytearray(max(end + 1 - start, 0))
            for offset in offsets:
                marks[offset - start] = 1
            offsets = ()
        for offset in offsets:
            number = offset >> WINDOW_BITS
            window = windows.get(number)
            if window is None:
                window = windows[number] = array("H")
            window.append(offset & WINDOW_MASK)
        self._windows = windows
        self._open_number = -1
        self._open_offsets: list[int] = []
        self._tombstones = tombstone_batches

    def may_hold_tombstones(self, base_offset: int) -> bool:
        tombstones = self._tombstones
        if len(tombstones) >= TOMBSTONE_BATCHES_MOST and base_offset > tombstones[-1]:
            return True
        at = bisect_left(tombstones, base_offset)
        return at < len(tombstones) and tombstones[at] == base_offset

    def between(self, first: int, last: int) -> Buffer:
        """For each offset from first to last one byte: 1 when it stays, else 0."""
        if self._marks is not None:
            return self._marks[first - self.start : last + 1 - self.start]
        marks = bytearray(last + 1 - first)
        for number in range(first >> WINDOW_BITS, (last >> WINDOW_BITS) + 1):
            offsets = self._window(number)
            shift = (number << WINDOW_BITS) - first
            begin = bisect_left(offsets, -shift)
            end = bisect_left(offsets, last - first - shift + 1, begin)
            for offset in offsets[begin:end]:
                marks[offset + shift] = 1
        return marks

    def any_between(self, first: int, last: int) -> bool:
        if self._marks is not None:
            return self._marks.find(1, first - self.start, last + 1 - self.start) >= 0
        for number in range(first >> WINDOW_BITS, (last >> WINDOW_BITS) + 1):
            offsets = self._window(number)
            shift = (number << WINDOW_BITS) - first
            at = bisect_left(offsets, -shift)
            if at < len(offsets) and offsets[at] + shift <= last - first:
                return True
        return False

    def _window(self, number: int) -> list[int]:
        if number != self._open_number:
            window = self._windows.get(number)
            self._open_number = number
            self._open_offsets = [] if window is None else sorted(window)
        return self._open_offsets
