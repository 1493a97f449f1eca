"""A segment's index files: Kafka's OffsetIndex, TimeIndex and TransactionIndex, with their bytes on disk, searched page by page.

An index searches and takes entries, and tracks which bytes the file still lacks. log_segment.py decides when to write.
Only the entries after the last whole page are in memory. A complete page goes to the file and is read back through the
node's IndexCache. Kafka preallocates these files and trims them when a segment is closed. Here they always have the
trimmed form.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kafkacompat.log.index_cache import IndexCache

if TYPE_CHECKING:
    from kafkacompat.ports import Disk, File

PAGE_BYTES = 4096
"""Size of the unit in which an index is read and cached: the whole entries within this many bytes."""
MAX_RELATIVE_OFFSET = 0x7FFFFFFF
MAX_OFFSET = (1 << 63) - 1

_generations = itertools.count()


class IndexCorrupt(ValueError):
    """No index of this segment can have this size or order. The file must be rebuilt."""


class Index:
    """Entries of fixed size. Of the `size` bytes the first `written` are in the file, and those from `_tail_at` on are
    in memory."""

    __slots__ = (
        "_cache",
        "_disk",
        "_file",
        "_generation",
        "_hint",
        "_tail",
        "_tail_at",
        "base_offset",
        "path",
        "size",
        "written",
    )
    layout = struct.Struct("x")
    entry_size = 1
    page_size = PAGE_BYTES

    def __init__(
        self,
        base_offset: int,
        data: bytes | bytearray = b"",
        *,
        disk: Disk | None = None,
        path: str = "",
        cache: IndexCache | None = None,
    ) -> None:
        """Start with the entries of `data` in memory. Without a disk they stay there."""
        if len(data) % self.entry_size:
            raise IndexCorrupt(f"{len(data)} bytes are not whole entries of {self.entry_size}")
        self.base_offset = base_offset
        self.path = path
        self._disk = disk
        self._cache = cache
        self._tail = bytearray(data)
        self._tail_at = 0
        self.size = len(data)
        self.written = len(data)
        self._generation = next(_generations)
        """Part of the key of cached pages. It changes when entries are removed, so that old pages are not found."""
        self._hint = 0
        """The page where the last search ended. The next search is usually at or after it."""
        self._file: File | None = None
        """Open only during a search."""

    @classmethod
    def over(cls, base_offset: int, data: bytes) -> Self:
        """Of entries that are searched and never changed, so that they need no copy. Raises IndexCorrupt."""
        if len(data) % cls.entry_size:
            raise IndexCorrupt(f"{len(data)} bytes are not whole entries of {cls.entry_size}")
        index = cls(base_offset)
        index._tail = data  # type: ignore[assignment]  # nothing is added
        index.size = index.written = len(data)
        return index

    def attach(self) -> None:
        """Take over the entries in the file. Raises FileNotFoundError or IndexCorrupt."""
        assert self._disk is not None
        size = self._disk.file_size(self.path)
        if size % self.entry_size:
            raise IndexCorrupt(f"{size} bytes are not whole entries of {self.entry_size}")
        self.size = self.written = self._tail_at = size
        self._tail.clear()
        self._generation = next(_generations)

    def view(self) -> Any:
        """A copy of the present state, for a search in another thread."""
        other = type(self)(self.base_offset, disk=self._disk, path=self.path, cache=self._cache)
        other._tail = bytearray(self._tail)
        other._tail_at, other.size, other.written = self._tail_at, self.size, self.written
        other._generation = self._generation
        return other

    def __len__(self) -> int:
        return self.size // self.entry_size

    @property
    def data(self) -> bytearray:
        """All entries of an index without a file."""
        return self._tail

    @property
    def kept_bytes(self) -> int:
        """Size of the entries in memory, without the cache."""
        return len(self._tail)

    # -- searching

    def fields(self, index: int) -> tuple[int, ...]:
        at = index * self.entry_size
        if at >= self._tail_at:
            return self.layout.unpack_from(self._tail, at - self._tail_at)
        page, inside = divmod(at, self.page_size)
        try:
            return self.layout.unpack_from(self._page(page), inside)
        finally:
            self._file = None

    def rank(self, target: int, field: int) -> int:
        """Number of entries whose value in an ascending field is at most `target`."""
        unpack, width, tail_at = self.layout.unpack_from, self.entry_size, self._tail_at
        if tail_at < self.size and (not tail_at or unpack(self._tail)[field] <= target):
            data: bytes | bytearray = self._tail
            first, high = tail_at // width, len(data) // width
        else:
            try:
                page = self._pages_until(target, field) - 1
                if page < 0:
                    return 0
                data = self._page(page)
            finally:
                self._file = None
            start = page * self.page_size
            first, high = start // width, min(self.page_size, tail_at - start) // width
        low = 0
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * width)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return first + low

    def _pages_until(self, target: int, field: int) -> int:
        """Number of pages in the file whose first entry has at most this value."""
        unpack = self.layout.unpack_from
        low, high = 0, (self._tail_at + self.page_size - 1) // self.page_size
        hint = self._hint
        if hint < high:
            page = self._page(hint)
            if unpack(page)[field] <= target:
                if unpack(page, len(page) - self.entry_size)[field] >= target:
                    return hint + 1
                low = hint + 1
            else:
                high = hint
        while low < high:
            middle = (low + high) >> 1
            if unpack(self._page(middle))[field] <= target:
                low = middle + 1
            else:
                high = middle
        self._hint = max(low - 1, 0)
        return low

    def all_fields(self, start: int = 0) -> Iterator[tuple[int, ...]]:
        """The entries from number `start` on, read page by page."""
        per_page = self.page_size // self.entry_size
        in_file = self._tail_at // self.entry_size
        try:
            while start < in_file:
                page, inside = divmod(start, per_page)
                end = min((page + 1) * per_page, in_file)
                whole = memoryview(self._page(page))
                yield from self.layout.iter_unpack(
                    whole[inside * self.entry_size : (inside + end - start) * self.entry_size]
                )
                start = end
        finally:
            self._file = None
        yield from self.layout.iter_unpack(bytes(self._tail[start * self.entry_size - self._tail_at :]))

    def _page(self, number: int) -> bytes:
        start = number * self.page_size
        length = min(self.page_size, self._tail_at - start)
        cache = self._cache
        page = None if cache is None else cache.get((self._generation, number))
        # A page that was cached before the file had all of it is shorter.
        if page is None or len(page) < length:
            page = self._read(start, length)
            if cache is not None:
                cache.put((self._generation, number), page)
        return page

    def _read(self, start: int, length: int) -> bytes:
        file = self._file
        if file is None:
            assert self._disk is not None
            file = self._file = self._disk.open(self.path)
        data = file.try_read(start, length)
        if data is None:
            data = file.read_cold(start, length)
        if len(data) < length:
            raise IndexCorrupt(f"{self.path} ends at {start + len(data)}")
        return data

    # -- growing and shrinking

    def make_ready(self) -> None:
        """Read or write the file now so that the next append cannot fail. Raises OSError."""
        if self._tail_at % self.page_size:
            self._take_up()
        elif len(self._tail) >= self.page_size and self._disk is not None:
            self.write()
            self._keep_last_page()

    def add(self, *fields: int) -> None:
        if self._tail_at % self.page_size:
            self._take_up()
        self._tail += self.layout.pack(*fields)
        self.size += self.entry_size

    def _take_up(self) -> None:
        """Read the incomplete last page into memory, where it grows."""
        begun = self._tail_at % self.page_size
        try:
            data = self._read(self._tail_at - begun, begun)
        finally:
            self._file = None
        self._tail[:0] = data
        self._tail_at -= begun

    def cut(self, entries: int) -> None:
        """Keep only the first `entries` entries. The file is cut at the next write."""
        self.uncache()
        self.size = entries * self.entry_size
        self.written = min(self.written, self.size)
        if self.size >= self._tail_at:
            del self._tail[self.size - self._tail_at :]
        else:
            self._tail.clear()
            self._tail_at = self.size
        self._generation = next(_generations)

    def write(self) -> None:
        """Write the missing entries to the file, without a sync."""
        assert self._disk is not None
        file = self._disk.open(self.path, create=True)
        if file.size() != self.written:
            file.truncate(self.written)
        if self.written < self.size:
            file.write_now(bytes(self._tail[self.written - self._tail_at :]))
            self.written = self.size
        file.close()

    def let_go(self) -> None:
        """Free the memory of entries that are in the file. For indexes that take no entries for now."""
        if self.written == self.size and self._cache is not None:
            self._keep_last_page()
            if self._tail:
                self._cache.put((self._generation, self._tail_at // self.page_size), bytes(self._tail))
            self._tail.clear()
            self._tail_at = self.size

    def uncache(self) -> None:
        """Free the cached pages: the file is gone, or its entries are others."""
        if self._cache is not None:
            self._cache.drop(self._generation, -(-self.size // self.page_size))

    def _keep_last_page(self) -> None:
        """Move whole pages, which are all in the file, from memory to the cache. Readers of the log's end find them
        there."""
        if self._cache is None or self._tail_at % self.page_size:
            return
        whole = len(self._tail) - len(self._tail) % self.page_size
        for start in range(0, whole, self.page_size):
            page = bytes(self._tail[start : start + self.page_size])
            self._cache.put((self._generation, (self._tail_at + start) // self.page_size), page)
        del self._tail[:whole]
        self._tail_at += whole


def entry_type(layout: struct.Struct) -> tuple[struct.Struct, int, int]:
    """Returns the layout, the size of an entry, and the size of the whole entries in a page."""
    return layout, layout.size, PAGE_BYTES - PAGE_BYTES % layout.size


_OFFSET_ENTRY = struct.Struct(">ii")
OFFSET_ENTRY_SIZE = 8


class OffsetIndex(Index):
    """Entries of (last offset of a batch relative to the base, position where that batch begins), both ascending."""

    __slots__ = ()
    layout, entry_size, page_size = entry_type(_OFFSET_ENTRY)

    def append(self, last_offset: int, position: int) -> None:
        if self._tail_at % _OFFSET_PAGE:
            self._take_up()
        self._tail += _OFFSET_ENTRY.pack(last_offset - self.base_offset, position)
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

    def position_after(self, offset: int) -> int:
        """The position of the first entry after an offset: the batch with this offset does not begin behind it. -1 if there is
        none."""
        at = self.rank(offset - self.base_offset, 0)
        return self.entry(at)[1] if at < len(self) else -1

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


_TIME_ENTRY = struct.Struct(">qi")
TIME_ENTRY_SIZE = 12


class TimeIndex(Index):
    """Entries of (timestamp in ms, last offset of its batch relative to the base), ascending."""

    __slots__ = ()
    layout, entry_size, page_size = entry_type(_TIME_ENTRY)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Append an entry if the timestamp is later than the last one."""
        tail = self._tail
        last_ms = (
            _TIME_ENTRY.unpack_from(tail, len(tail) - TIME_ENTRY_SIZE)[0] if tail else self.last_entry()[0]
        )
        if timestamp_ms > last_ms:
            if self._tail_at % _TIME_PAGE:
                self._take_up()
            tail += _TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset)
            self.size += TIME_ENTRY_SIZE

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


_OFFSET_PAGE, _TIME_PAGE = OffsetIndex.page_size, TimeIndex.page_size
"""An instance finds what belongs to its class in ten times the time of a module's name."""


def are_ready(offsets: OffsetIndex, times: TimeIndex) -> bool:
    """Whether both can take their next entry without their files."""
    return (
        len(offsets._tail) < _OFFSET_PAGE
        and len(times._tail) < _TIME_PAGE
        and not offsets._tail_at % _OFFSET_PAGE
        and not times._tail_at % _TIME_PAGE
    )


_TXN_ENTRY = struct.Struct(">hqqqq")
TXN_ENTRY_SIZE = 34


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionSpan(NamedTuple):
    """Bounds of an index, to decide whether a range needs it."""

    first_offset: int
    """The lowest first offset of all entries."""
    stable_offset: int
    """The last stable offset of the last entry: transactions that ended later began at or after it. -1 without
    entries."""


NO_TRANSACTIONS = TransactionSpan(MAX_OFFSET, -1)
_LAST_OFFSET = 3


class TransactionIndex(Index):
    """Aborted transactions in the order of their markers, each with the last stable offset at its end."""

    __slots__ = ()
    layout, entry_size, page_size = entry_type(_TXN_ENTRY)

    def append(self, entry: AbortedTxn) -> None:
        self.add(0, *entry)

    def span(self) -> TransactionSpan:
        """The bounds of the index. Reads every entry."""
        if not self.size:
            return NO_TRANSACTIONS
        return TransactionSpan(min(fields[2] for fields in self.all_fields()), self.last_stable_offset())

    def last_stable_offset(self) -> int:
        """The last stable offset of the last entry. -1 if there is none."""
        return self.fields(len(self) - 1)[4] if self.size else -1

    def entries(self) -> list[AbortedTxn]:
        return [AbortedTxn(*fields[1:]) for fields in self.all_fields()]

    def collect(
        self, fetch_offset: int, upper_bound_offset: int, most: int = MAX_OFFSET
    ) -> tuple[list[AbortedTxn], bool]:
        """(entries that overlap the range, whether later segments cannot add any). Raises IndexCorrupt.

        With `most` entries it stops, if these are all that overlap the range up to the last one's last stable offset, and
        that is above the fetch offset.
        """
        found: list[AbortedTxn] = []
        if not self.size:
            return found, False
        for fields in self.all_fields(self.rank(fetch_offset - 1, _LAST_OFFSET)):
            self._check(fields)
            if fields[2] < upper_bound_offset:
                found.append(AbortedTxn(*fields[1:]))
                if len(found) >= most and fields[4] > fetch_offset:
                    return found, True
            if fields[4] >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        self.cut(self.rank(offset - 1, _LAST_OFFSET))

    def check(self) -> None:
        """Check every entry. Raises IndexCorrupt."""
        for fields in self.all_fields():
            self._check(fields)

    def _check(self, fields: tuple[int, ...]) -> None:
        if fields[0] != 0 or fields[_LAST_OFFSET] < self.base_offset:
            raise IndexCorrupt(f"an entry {fields}")
