"""The offset index and the time index of one segment, as a pair: both get entries at the same moments and need each
other.

It opens the files, adds entries, gives copies to other threads and writes the files. segment.py decides what to do
about a damaged file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.log.index import IndexCorrupt
from kafkacompat.log.offset_index import OffsetIndex
from kafkacompat.log.time_index import TIME_ENTRY_SIZE, TimeIndex

if TYPE_CHECKING:
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.ports import Disk

INDEX_SUFFIX, TIME_INDEX_SUFFIX = ".index", ".timeindex"
REBUILT_SUFFIX = ".rebuilt"
"""Suffix of an index file that will replace a damaged one."""

Pair = tuple[OffsetIndex, TimeIndex]


class SegmentIndexes:
    """A pair of indexes. FileNotFoundError and IndexCorrupt mean that they are damaged."""

    __slots__ = ("_base_offset", "_cache", "_disk", "_pair", "_stem")

    def __init__(self, disk: Disk, stem: str, base_offset: int, cache: IndexCache) -> None:
        self._disk = disk
        self._stem = stem
        self._base_offset = base_offset
        self._cache = cache
        self._pair: Pair | None = None
        """None until the files are first opened."""

    def begin(self, suffix: str = "") -> None:
        """Start with empty indexes, whatever the files contain. `suffix` is appended to their names if they will
        replace others later."""
        self._pair = self._empty(suffix)

    def pair(self, log_size: int) -> Pair:
        """The indexes of a segment of `log_size` bytes."""
        if self._pair is None:
            self._pair = self._attached(log_size)
        return self._pair

    def are_ready(self) -> bool:
        pair = self._pair
        return pair is not None and pair[0].is_ready() and pair[1].is_ready()

    def add(
        self, log_size: int, last_offset: int, position: int, timestamp_ms: int, timestamp_offset: int
    ) -> None:
        """Add the entries of one moment: a batch, and the largest timestamp so far. After `make_ready` this cannot
        fail."""
        offsets, times = self._pair or self.pair(log_size)
        offsets.append(last_offset, position)
        times.maybe_append(timestamp_ms, timestamp_offset)

    def views(self, log_size: int) -> Pair:
        """Copies for a search in another thread. Any thread may make them for a closed segment; for the active one
        only the loop's thread."""
        pair = self._pair
        if pair is None:
            return self._attached(log_size)
        return pair[0].view(), pair[1].view()

    def _attached(self, log_size: int) -> Pair:
        offsets, times = self._empty()
        if log_size:
            offsets.attach()
            times.attach()
            offsets.check(log_size)
            times.check()
        return offsets, times

    def _empty(self, suffix: str = "") -> Pair:
        base, disk, cache = self._base_offset, self._disk, self._cache
        return (
            OffsetIndex(base, disk=disk, path=self._stem + INDEX_SUFFIX + suffix, cache=cache),
            TimeIndex(base, disk=disk, path=self._stem + TIME_INDEX_SUFFIX + suffix, cache=cache),
        )

    def write(self, *, create: bool) -> Iterator[str]:
        """Write the missing entries, without a sync. Returns the paths of the files that have entries, or may have.
        See LogSegment.write_indexes."""
        if self._pair is None:
            # The files were not opened since they were written, but may not be synced yet.
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                if self._disk.exists(self._stem + suffix):
                    yield self._stem + suffix
            return
        for index in self._pair:
            if index.size or create:
                index.write()
            if index.size:
                yield index.path

    def wait_for_their_files(self) -> bool:
        """Whether some entries are in memory only."""
        return any(index.written < index.size for index in self._pair or ())

    def sync(self) -> None:
        """Sync what has been written. Blocks."""
        for index in self._pair or ():
            file = self._disk.open(index.path)
            file.sync()
            file.close()

    def take_rebuilt(self) -> None:
        """Put the rebuilt files in the place of the present ones."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.rename(self._stem + suffix + REBUILT_SUFFIX, self._stem + suffix)
        self._pair = None

    def forget(self) -> None:
        self._pair = None

    def relocate(self, stem: str) -> None:
        self._stem = stem
        if self._pair is not None:
            self._pair[0].path, self._pair[1].path = stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX

    def let_go(self) -> None:
        for index in self._pair or ():
            index.let_go()

    def uncache(self) -> None:
        for index in self._pair or ():
            index.uncache()

    def kept_bytes(self) -> int:
        """Size of the entries in memory, without the cache."""
        return sum(index.kept_bytes for index in self._pair or ())


def last_time_entry(disk: Disk, stem: str, base_offset: int) -> tuple[int, int]:
    """The largest timestamp of a closed segment, which retention uses, and the last offset of its batch. (-1, base
    offset) if no record has one. Reads nothing else. Raises FileNotFoundError or IndexCorrupt."""
    path = stem + TIME_INDEX_SUFFIX
    size = disk.file_size(path)
    if size % TIME_ENTRY_SIZE:
        raise IndexCorrupt(f"{size} bytes are not whole entries of {TIME_ENTRY_SIZE}")
    if not size:
        return -1, base_offset
    file = disk.open(path)
    try:
        return TimeIndex(base_offset, file.read_cold(size - TIME_ENTRY_SIZE, TIME_ENTRY_SIZE)).last_entry()
    finally:
        file.close()
