"""The positions of batches in a segment by offset: the .index file, with one entry per index.interval.bytes."""

from __future__ import annotations

import struct

from kafkacompat.log.index import Index, IndexCorrupt, entry_type

_ENTRY = struct.Struct(">ii")
OFFSET_ENTRY_SIZE = 8


class OffsetIndex(Index):
    """Entries of (last offset of a batch relative to the base, position where that batch begins), both ascending."""

    __slots__ = ()
    layout, entry_size, page_size = entry_type(_ENTRY)

    def append(self, last_offset: int, position: int) -> None:
        if self._tail_at % self.page_size:
            self._take_up()
        self._tail += _ENTRY.pack(last_offset - self.base_offset, position)
        self.size += OFFSET_ENTRY_SIZE

    def entry(self, index: int) -> tuple[int, int]:
        relative, position = self.fields(index)
        return self.base_offset + relative, position

    def last_offset(self) -> int:
        """The offset of the last entry. The base offset if there is none."""
        return self.entry(len(self) - 1)[0] if self.size else self.base_offset

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or before an offset: (last offset of a batch, position of that batch). (-1, 0) if there is
        none."""
        rank = self.rank(offset - self.base_offset, 0)
        return self.entry(rank - 1) if rank else (-1, 0)

    def offset_at(self, position: int) -> int:
        """The offset of the first entry whose batch begins at or after a position. -1 if there is none."""
        at = self.rank(position - 1, 1)
        return self.entry(at)[0] if at < len(self) else -1

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or after an offset."""
        self.cut(self.rank(offset - 1 - self.base_offset, 0))

    def check(self, log_size: int) -> None:
        """Raise IndexCorrupt if the entries cannot belong to a log file of this size."""
        if self.size:
            offset, position = self.entry(len(self) - 1)
            if offset < self.base_offset or not 0 <= position < max(log_size, 1):
                raise IndexCorrupt(f"the last entry is offset {offset} at {position}")
            if len(self) > 1 and self.entry(0)[0] >= offset:
                raise IndexCorrupt("offsets do not ascend")
