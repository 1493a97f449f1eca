"""The aborted transactions of one segment: its `.txnindex`, and whether the file must be read.

SegmentAborted opens the index, searches a range and takes new entries. segment.py decides when to write the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.index import MAX_OFFSET, IndexCorrupt
from kafkacompat.log.transaction_index import NO_TRANSACTIONS, AbortedTxn, TransactionIndex, TransactionSpan
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.ports import Disk

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
