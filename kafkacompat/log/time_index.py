"""The offsets of timestamps in a segment: its .timeindex file."""

from __future__ import annotations

import struct

from kafkacompat.log.index import Index, IndexCorrupt, entry_type

_ENTRY = struct.Struct(">qi")
TIME_ENTRY_SIZE = 12


class TimeIndex(Index):
    """Entries of (timestamp in ms, last offset of its batch relative to the base), ascending."""

    __slots__ = ()
    layout, entry_size, page_size = entry_type(_ENTRY)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Append an entry if the timestamp is later than the last one."""
        tail = self._tail
        last_ms = _ENTRY.unpack_from(tail, len(tail) - TIME_ENTRY_SIZE)[0] if tail else self.last_entry()[0]
        if timestamp_ms > last_ms:
            self.add(timestamp_ms, offset - self.base_offset)

    def entry(self, index: int) -> tuple[int, int]:
        timestamp_ms, relative = self.fields(index)
        return timestamp_ms, self.base_offset + relative

    def last_entry(self) -> tuple[int, int]:
        """The last entry. (-1, base offset) if there is none."""
        return self.entry(len(self) - 1) if self.size else (-1, self.base_offset)

    def around(self, timestamp_ms: int) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """The last entry at or before a timestamp ((-1, base offset) if there is none), and the next entry or None."""
        rank = self.rank(timestamp_ms, 0)
        before = self.entry(rank - 1) if rank else (-1, self.base_offset)
        return before, self.entry(rank) if rank < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or after an offset."""
        self.cut(self.rank(offset - 1 - self.base_offset, 1))

    def check(self) -> None:
        if self.size:
            timestamp_ms, offset = self.last_entry()
            if offset < self.base_offset or timestamp_ms < self.entry(0)[0]:
                raise IndexCorrupt(f"the last entry is timestamp {timestamp_ms} at offset {offset}")
