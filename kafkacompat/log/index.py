"""What the three index files of a segment have in common: Kafka's bytes on disk, searched page by page.

Duty: search entries, take new ones, tell which bytes the file still lacks. Must not know: batches, segments (segment.py says when
to write). In memory are the entries after the last whole page only: whole pages go to the file once they are complete, and come
back through the node's IndexCache. Kafka preallocates these files and trims them when a segment is closed; here they only ever
hold entries, which is the trimmed form.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkacompat.log.index_cache import IndexCache

if TYPE_CHECKING:
    from kafkacompat.ports import Disk, File

PAGE_BYTES = 4096
"""What is read and kept of an index at once; the whole entries in it."""
MAX_RELATIVE_OFFSET = 0x7FFFFFFF
MAX_OFFSET = (1 << 63) - 1

_generations = itertools.count()


class IndexCorrupt(ValueError):
    """A file whose size or order no index of this segment can have: it must be built anew."""


class Index:
    """Entries of fixed size. Of `size` bytes the first `written` are in the file, and those from `_tail_at` on in memory."""

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
        """With its entries in memory; without a disk they stay there."""
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
        """Names the pages in the cache; another one when entries are taken back, so that none of before is met."""
        self._hint = 0
        """The page that the last search ended in: the next one is mostly for what follows."""
        self._file: File | None = None
        """Open during a search."""

    def attach(self) -> None:
        """Take the entries that the file has. FileNotFoundError, IndexCorrupt."""
        assert self._disk is not None
        size = self._disk.file_size(self.path)
        if size % self.entry_size:
            raise IndexCorrupt(f"{size} bytes are not whole entries of {self.entry_size}")
        self.size = self.written = self._tail_at = size
        self._tail.clear()
        self._generation = next(_generations)

    def view(self) -> Any:
        """What it holds now, for a search in another thread."""
        other = type(self)(self.base_offset, disk=self._disk, path=self.path, cache=self._cache)
        other._tail = bytearray(self._tail)
        other._tail_at, other.size, other.written = self._tail_at, self.size, self.written
        other._generation = self._generation
        return other

    def __len__(self) -> int:
        return self.size // self.entry_size

    @property
    def data(self) -> bytearray:
        """Every entry, of one that has no file."""
        return self._tail

    @property
    def kept_bytes(self) -> int:
        """Bytes of entries held in memory, apart from the cache."""
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
        """How many entries have at most this value in a field that ascends."""
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
        """How many pages in the file begin with an entry that has at most this value."""
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
        """The entries from one on, a page at a time."""
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
        # One that was read before the file had all of it is shorter.
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

    def is_ready(self) -> bool:
        """Whether an entry can be taken without the file."""
        return len(self._tail) < self.page_size and not self._tail_at % self.page_size

    def make_ready(self) -> None:
        """Do what the next entry may need of the file, so that taking it cannot fail. OSError."""
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
        """The last page is not whole: from here on it grows in memory."""
        begun = self._tail_at % self.page_size
        try:
            data = self._read(self._tail_at - begun, begun)
        finally:
            self._file = None
        self._tail[:0] = data
        self._tail_at -= begun

    def cut(self, entries: int) -> None:
        """Keep only the first entries; the file is cut when it is next brought up to date."""
        self.size = entries * self.entry_size
        self.written = min(self.written, self.size)
        if self.size >= self._tail_at:
            del self._tail[self.size - self._tail_at :]
        else:
            self._tail.clear()
            self._tail_at = self.size
        self._generation = next(_generations)

    def write(self) -> None:
        """Bring the file up to the entries, unsynced."""
        assert self._disk is not None
        file = self._disk.open(self.path, create=True)
        if file.size() != self.written:
            file.truncate(self.written)
        if self.written < self.size:
            file.write_now(bytes(self._tail[self.written - self._tail_at :]))
            self.written = self.size
        file.close()

    def let_go(self) -> None:
        """Nothing is added for now: what the file has need not stay in memory."""
        if self.written == self.size and self._cache is not None:
            self._keep_last_page()
            if self._tail:
                self._cache.put((self._generation, self._tail_at // self.page_size), bytes(self._tail))
            self._tail.clear()
            self._tail_at = self.size

    def _keep_last_page(self) -> None:
        """Whole pages, all of them in the file, leave memory by way of the cache: who reads the end has them at hand."""
        if self._cache is None or self._tail_at % self.page_size:
            return
        whole = len(self._tail) - len(self._tail) % self.page_size
        for start in range(0, whole, self.page_size):
            page = bytes(self._tail[start : start + self.page_size])
            self._cache.put((self._generation, (self._tail_at + start) // self.page_size), page)
        del self._tail[:whole]
        self._tail_at += whole


def entry_type(layout: struct.Struct) -> tuple[struct.Struct, int, int]:
    """An entry, its size, and that of the whole ones in a page."""
    return layout, layout.size, PAGE_BYTES - PAGE_BYTES % layout.size
