"""What all logs of a node have together: the cached pages of their index files, and the segments whose files are open.

IndexCache is the only bound on the memory of indexes. Pages are kept by key, and the least recently used one is evicted
first. All logs share one cache, so that a node with few busy logs can use all of it. A sequential reader uses one page per
two megabytes of log, so it does not evict the pages of others.

A segment keeps its file open once it was read, so consumers that read from the start open the files of all segments.
While more are open than the process's limit of open files leaves to logs, those that were opened first are closed
(`OpenFiles`). The next use opens them again. A slice that is being sent keeps its file.

Any thread may use both, because every step is a single operation of a dict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol
from weakref import ReferenceType, ref

INDEX_CACHE_BYTES = 64 * 1024 * 1024
"""The bound for a node. It covers the index pages of 10 to 20 GB of log with small reads, or of 30,000 places read in
turn."""
BYTES_BESIDE_A_PAGE = 256
"""Approximate memory of a page besides its bytes."""
LARGEST_PAGE = 4096

UNLIMITED = 2**31 - 1

Name = tuple[int, int]
"""(generation of an index, number of the page)."""


class IndexCache:
    __slots__ = ("_most", "_pages", "open_files")

    def __init__(
        self, limit_bytes: int = INDEX_CACHE_BYTES, *, open_files_max: Callable[[], int] = lambda: UNLIMITED
    ) -> None:
        self._most = max(limit_bytes // (LARGEST_PAGE + BYTES_BESIDE_A_PAGE), 1)
        self._pages: OrderedDict[Name, bytes] = OrderedDict()
        self.open_files = OpenFiles(open_files_max)
        """It bounds descriptors as the pages are bounded: for all logs of the node together."""

    def get(self, name: Name) -> bytes | None:
        page = self._pages.get(name)
        if page is not None:
            try:
                self._pages.move_to_end(name)
            except KeyError:
                # Another thread has just evicted the page.
                return page
        return page

    def put(self, name: Name, page: bytes) -> None:
        pages = self._pages
        pages[name] = page
        while len(pages) > self._most:
            try:
                pages.popitem(last=False)
            except KeyError:
                return

    def drop(self, generation: int, pages: int) -> None:
        """Free the first pages of an index that nobody searches any more. Otherwise they would stay until the cache is
        full."""
        for number in range(pages):
            self._pages.pop((generation, number), None)

    def __len__(self) -> int:
        return len(self._pages)

    def size_bytes(self) -> int:
        """Size of the pages in the cache."""
        return sum(map(len, tuple(self._pages.values())))


class Opened(Protocol):
    def release(self) -> None:
        """Close the file, and call `closed`."""
        ...


class OpenFiles:
    """It does not keep a segment that nobody else has: its file closes with it. What else is open, such as indexes that are read
    and files that are still sent, is not here: `open_files` of log/disk.py counts all."""

    __slots__ = ("_most", "_segments")

    def __init__(self, most: Callable[[], int] = lambda: UNLIMITED) -> None:
        """`most` returns how many there may be. At least one is open."""
        self._segments: OrderedDict[int, ReferenceType[Opened]] = OrderedDict()
        """By identity, in the order in which they were opened."""
        self._most = most

    def __len__(self) -> int:
        return len(self._segments)

    def opened(self, segment: Opened) -> None:
        segments, key = self._segments, id(segment)
        segments[key] = ref(segment, lambda _: segments.pop(key, None))
        most = self._most()
        while len(segments) > max(most, 1):
            try:
                _, reference = segments.popitem(last=False)
            except KeyError:
                return  # other threads have closed them
            oldest = reference()
            if oldest is not None:
                oldest.release()

    def closed(self, segment: Opened) -> None:
        self._segments.pop(id(segment), None)
