"""Pages of index files, of all the logs of a node: the one bound on what indexes cost in memory.

Duty: hold pages by name, and let those go that were asked for longest ago. Must not know: files, entries. One cache for all, so
that a node with few busy logs gives them all of it; what one reader passes by is a page for every two megabytes of log, so
none drives out what the others use. Any thread: every step is one operation of a dict.
"""

from __future__ import annotations

from collections import OrderedDict

INDEX_CACHE_BYTES = 64 * 1024 * 1024
"""Of a node: the index pages of 10 to 20 GB of log that is read in the small, or of 30,000 places that are read in turn."""
BYTES_BESIDE_A_PAGE = 256
"""What a page costs besides its bytes, about."""
LARGEST_PAGE = 4096

Name = tuple[int, int]
"""(generation of an index, number of the page)."""


class IndexCache:
    __slots__ = ("_most", "_pages")

    def __init__(self, limit_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._most = max(limit_bytes // (LARGEST_PAGE + BYTES_BESIDE_A_PAGE), 1)
        self._pages: OrderedDict[Name, bytes] = OrderedDict()

    def get(self, name: Name) -> bytes | None:
        page = self._pages.get(name)
        if page is not None:
            try:
                self._pages.move_to_end(name)
            except KeyError:
                # Another thread has let it go just now.
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

    def __len__(self) -> int:
        return len(self._pages)

    def size_bytes(self) -> int:
        """Of the pages held now."""
        return sum(map(len, tuple(self._pages.values())))
