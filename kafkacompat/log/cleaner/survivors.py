"""The records of the mapped part that are kept. Each key's last offset belongs to exactly one record, so the offsets
are enough.

It returns an offset map's offsets in order, batch by batch, and does not use keys or batch contents. A batch without
any key's last offset is dropped without being opened, and one that has nothing else is kept unchanged. Looking up
every key again would take as long as building the map. If memory allows, it uses one byte for each offset of the part.
Otherwise it uses two bytes for each kept offset, in windows of 65,536.
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
"""The most batches with null values that are remembered. Later batches must be opened."""


class Survivors:
    """`between` answers for offsets from `start` to `end` inclusive, the part that the map covers. Ascending calls are
    the fastest."""

    __slots__ = ("_marks", "_open_number", "_open_offsets", "_tombstones", "_windows", "end", "start")

    def __init__(
        self,
        offsets: Iterable[int],
        start: int,
        end: int,
        tombstone_batches: array[int],
        marks_most: int,
    ) -> None:
        """`offsets` are those of the kept records, in any order. `tombstone_batches` has the ascending base offsets of
        batches with null values; beyond a full array they are unknown. `marks_most` is the number of bytes available."""
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
        """One byte for each offset from first to last: 1 if it is kept, else 0."""
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
