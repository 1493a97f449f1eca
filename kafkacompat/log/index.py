"""The three index files of a segment, as entries in memory and as Kafka's bytes on disk.

Duty: hold entries in exactly the file's form, search them, tell which bytes the file still lacks. Must not know: files and
batches (segment.py moves the bytes). Kafka preallocates these files and trims them when a segment is closed; here they
only ever hold entries, which is the trimmed form.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
TXN_ENTRY_SIZE = 34
MAX_RELATIVE_OFFSET = 0x7FFFFFFF
MAX_OFFSET = (1 << 63) - 1


class IndexCorrupt(ValueError):
    """A file whose size or order no index of this segment can have: it must be built anew."""


class Index:
    """Entries of fixed size, the first `written` bytes of which are in the file."""

    __slots__ = ("base_offset", "data", "written")
    entry_size = 1

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        if len(data) % self.entry_size:
            raise IndexCorrupt(f"{len(data)} bytes are not whole entries of {self.entry_size}")
        self.base_offset = base_offset
        self.data = bytearray(data)
        self.written = len(data)

    def __len__(self) -> int:
        return len(self.data) // self.entry_size

    def cut(self, entries: int) -> None:
        """Keep only the first entries; the file is cut to `written` when it is next brought up to date."""
        del self.data[entries * self.entry_size :]
        self.written = min(self.written, len(self.data))


class OffsetIndex(Index):
    """(last offset of a batch relative to the base, position at which that batch begins), both ascending."""

    __slots__ = ()
    entry_size = OFFSET_ENTRY_SIZE

    def append(self, last_offset: int, position: int) -> None:
        self.data += _OFFSET_ENTRY.pack(last_offset - self.base_offset, position)

    def entry(self, index: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, index * OFFSET_ENTRY_SIZE)
        return self.base_offset + relative, position

    def last_offset(self) -> int:
        """Of the last entry; the base offset when empty."""
        return self.entry(len(self) - 1)[0] if self.data else self.base_offset

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or before an offset: (last offset of a batch, where that batch begins); (-1, 0) for none."""
        target = offset - self.base_offset
        data, unpack = self.data, _OFFSET_ENTRY.unpack_from
        low, high = 0, len(data) // OFFSET_ENTRY_SIZE
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * OFFSET_ENTRY_SIZE)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else (-1, 0)

    def offset_at(self, position: int) -> int:
        """Of the first entry whose batch begins at or after a position; -1 for none."""
        at = bisect_left(range(len(self)), position, key=lambda index: self.entry(index)[1])
        return self.entry(at)[0] if at < len(self) else -1

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose offset is at or after the given one."""
        entries = len(self)
        while entries and self.entry(entries - 1)[0] >= offset:
            entries -= 1
        self.cut(entries)

    def check(self, log_size: int) -> None:
        """Raise IndexCorrupt when entries cannot belong to a log file of this size."""
        if self.data:
            offset, position = self.entry(len(self) - 1)
            if offset < self.base_offset or not 0 <= position < max(log_size, 1):
                raise IndexCorrupt(f"the last entry is offset {offset} at {position}")
            if len(self) > 1 and self.entry(0)[0] >= offset:
                raise IndexCorrupt("offsets do not ascend")


class TimeIndex(Index):
    """(timestamp in ms, last offset of the batch that carries it, relative to the base), ascending."""

    __slots__ = ()
    entry_size = TIME_ENTRY_SIZE

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Append unless the timestamp is no later than the last one."""
        if timestamp_ms > self.last_entry()[0]:
            self.data += _TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset)

    def entry(self, index: int) -> tuple[int, int]:
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(self.data, index * TIME_ENTRY_SIZE)
        return timestamp_ms, self.base_offset + relative

    def last_entry(self) -> tuple[int, int]:
        """(-1, base offset) when empty."""
        return self.entry(len(self) - 1) if self.data else (-1, self.base_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """The offset of the last entry at or before a timestamp; the base offset when there is none."""
        data, unpack = self.data, _TIME_ENTRY.unpack_from
        low, high = 0, len(data) // TIME_ENTRY_SIZE
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * TIME_ENTRY_SIZE)[0] <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + int(unpack(data, (low - 1) * TIME_ENTRY_SIZE)[1] if low else 0)

    def truncate_to(self, offset: int) -> None:
        """Drop entries whose offset is at or after the given one."""
        entries = len(self)
        while entries and self.entry(entries - 1)[1] >= offset:
            entries -= 1
        self.cut(entries)

    def check(self) -> None:
        if self.data:
            timestamp_ms, offset = self.last_entry()
            if offset < self.base_offset or timestamp_ms < self.entry(0)[0]:
                raise IndexCorrupt(f"the last entry is timestamp {timestamp_ms} at offset {offset}")


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionSpan(NamedTuple):
    """What tells of an index whether a range need look into it."""

    first_offset: int
    """No entry begins before."""
    stable_offset: int
    """What ended after the last entry began at or after; -1 without entries."""


NO_TRANSACTIONS = TransactionSpan(MAX_OFFSET, -1)


class TransactionIndex(Index):
    """Aborted transactions in the order of their markers, with the last stable offset when each ended."""

    __slots__ = ("_first_offset",)
    entry_size = TXN_ENTRY_SIZE

    def __init__(self, base_offset: int, data: bytes | bytearray = b"") -> None:
        super().__init__(base_offset, data)
        self._first_offset = min(
            (fields[2] for fields in _TXN_ENTRY.iter_unpack(self.data)), default=MAX_OFFSET
        )

    def append(self, entry: AbortedEntry) -> None:
        self.data += _TXN_ENTRY.pack(0, *entry)
        self._first_offset = min(self._first_offset, entry.first_offset)

    def span(self) -> TransactionSpan:
        if not self.data:
            return NO_TRANSACTIONS
        return TransactionSpan(self._first_offset, self._entry(len(self) - 1).last_stable_offset)

    def _entry(self, index: int) -> AbortedEntry:
        return AbortedEntry(*_TXN_ENTRY.unpack_from(self.data, index * TXN_ENTRY_SIZE)[1:])

    def entries(self) -> list[AbortedEntry]:
        return [AbortedEntry(*fields[1:]) for fields in _TXN_ENTRY.iter_unpack(self.data)]

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedEntry], bool]:
        """(entries that overlap the range, True when later segments cannot add any)."""
        found: list[AbortedEntry] = []
        if not self.data:
            return found, False
        entries = range(len(self))
        for at in entries[bisect_left(entries, fetch_offset, key=lambda at: self._entry(at).last_offset) :]:
            entry = self._entry(at)
            if entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        entries = self.entries()
        while entries and entries[-1].last_offset >= offset:
            entries.pop()
        self.cut(len(entries))

    def check(self) -> None:
        for fields in _TXN_ENTRY.iter_unpack(self.data):
            if fields[0] != 0 or fields[3] < self.base_offset:
                raise IndexCorrupt(f"an entry {fields}")
