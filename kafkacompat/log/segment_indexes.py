"""The three indexes of one segment: the offset index and the time index as a pair, and its aborted transactions.

SegmentIndexes has the pair: both get entries at the same moments and need each other. It opens the files, adds entries, gives
copies to other threads and writes the files. SegmentAborted opens the `.txnindex`, searches a range and takes new entries,
and knows whether the file must be read. log_segment.py decides when to write, and what to do about a damaged file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.log.index import (
    MAX_OFFSET,
    NO_TRANSACTIONS,
    TIME_ENTRY_SIZE,
    AbortedTxn,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    TransactionSpan,
    are_ready,
)
from kafkacompat.records.batch import BatchCorrupt

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
        return pair is not None and are_ready(pair[0], pair[1])

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


TXN_INDEX_SUFFIX = ".txnindex"


def read_txn_index(disk: Disk, stem: str, base_offset: int) -> TransactionIndex:
    """Read the whole file. A missing file gives an empty index.

    Raises BatchCorrupt when the file cannot be an index of this segment.
    """
    try:
        index = TransactionIndex(base_offset, disk.read_bytes(stem + TXN_INDEX_SUFFIX))
        index.check()
    except FileNotFoundError:
        return TransactionIndex(base_offset)
    except IndexCorrupt as damage:
        raise _damaged(stem, damage) from damage
    return index


def _damaged(stem: str, damage: IndexCorrupt) -> BatchCorrupt:
    return BatchCorrupt(f"the aborted transactions of {stem}: {damage}")


class SegmentAborted:
    """Aborted transactions with absolute offsets.

    Methods that read the file raise BatchCorrupt when it is damaged, and OSError from the disk.
    """

    __slots__ = ("_base_offset", "_cache", "_disk", "_span", "_stem", "attached")

    def __init__(self, disk: Disk, stem: str, base_offset: int, cache: IndexCache) -> None:
        self._disk = disk
        self._stem = stem
        self._base_offset = base_offset
        self._cache = cache
        self.attached: TransactionIndex | None = None
        """None until the file is first opened."""
        self._span: TransactionSpan | None = None
        """None until the file is first read. Afterwards it covers at least all entries."""

    @property
    def index(self) -> TransactionIndex:
        index = self.attached
        if index is None:
            index = self._new()
            try:
                index.attach()
            except FileNotFoundError:
                self._span = NO_TRANSACTIONS
            except IndexCorrupt as damage:
                raise _damaged(self._stem, damage) from damage
            self.attached = index
        return index

    def _new(self) -> TransactionIndex:
        return TransactionIndex(
            self._base_offset, disk=self._disk, path=self._stem + TXN_INDEX_SUFFIX, cache=self._cache
        )

    def relocate(self, stem: str) -> None:
        self._stem = stem
        if self.attached is not None:
            self.attached.path = stem + TXN_INDEX_SUFFIX

    def find(
        self, fetch_offset: int, upper_bound_offset: int, most: int = MAX_OFFSET
    ) -> tuple[list[AbortedTxn], bool]:
        """See TransactionIndex.collect. Reads the file only if it may have entries in the range."""
        span = self._span
        if span is not None and span.first_offset >= upper_bound_offset:
            return [], span.stable_offset >= upper_bound_offset
        try:
            return self.index.collect(fetch_offset, upper_bound_offset, most)
        except IndexCorrupt as damage:
            raise _damaged(self._stem, damage) from damage

    def has_none(self) -> bool:
        """Whether the index is known to be empty."""
        return self._span is not None and self._span.stable_offset < 0

    def make_ready(self) -> None:
        """Read from the file now whatever an append may need. Raises OSError or BatchCorrupt."""
        try:
            self.index.make_ready()
        except IndexCorrupt as damage:
            raise _damaged(self._stem, damage) from damage

    def append(self, entry: AbortedTxn) -> None:
        self.index.append(entry)
        # If the earlier entries are unknown, they may begin at any offset.
        first = 0 if self._span is None else self._span.first_offset
        self._span = TransactionSpan(min(first, entry.first_offset), entry.last_stable_offset)

    def truncate_to(self, offset: int) -> None:
        index = self.index
        if index.size:
            index.truncate_to(offset)
            first = 0 if self._span is None else self._span.first_offset
            self._span = TransactionSpan(first if index.size else MAX_OFFSET, index.last_stable_offset())

    def is_sound(self) -> bool:
        """Whether the file, if it exists, can be an index of this segment. Reads the file and keeps only its span."""
        try:
            self._span = read_txn_index(self._disk, self._stem, self._base_offset).span()
        except BatchCorrupt:
            return False
        return True

    def note_absence(self) -> None:
        """Record that the file does not exist."""
        self._span = NO_TRANSACTIONS

    def begin(self) -> None:
        """Start with an empty index, whatever the file contains. The caller fills it from the batches."""
        self.attached = self._new()
        self._span = NO_TRANSACTIONS

    def uncache(self) -> None:
        if self.attached is not None:
            self.attached.uncache()

    def let_go(self) -> None:
        """Free the entries in memory that the file also has. For segments that take no appends for now."""
        if self.attached is not None:
            self.attached.let_go()
