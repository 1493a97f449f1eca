"""The aborted transactions of one segment: its `.txnindex`, and what tells whether it need be looked into.

Duty: open, search for a range, take new ones. Must not know: batches, other segments, when the file is written (segment.py).
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
    """Read whole; empty without a file. BatchCorrupt when the file can be no index of this segment."""
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
    """Offsets absolute. What reads the file raises BatchCorrupt when it is damaged; OSError passes through."""

    __slots__ = ("_base_offset", "_cache", "_disk", "_span", "_stem", "attached")

    def __init__(self, disk: Disk, stem: str, base_offset: int, cache: IndexCache) -> None:
        self._disk = disk
        self._stem = stem
        self._base_offset = base_offset
        self._cache = cache
        self.attached: TransactionIndex | None = None
        """None while the file has not been looked at."""
        self._span: TransactionSpan | None = None
        """None while nobody has looked; then never narrower than the entries."""

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

    def find(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """See TransactionIndex.collect. Reads the file only when it may have entries of the range."""
        span = self._span
        if span is not None and span.first_offset >= upper_bound_offset:
            return [], span.stable_offset >= upper_bound_offset
        try:
            return self.index.collect(fetch_offset, upper_bound_offset)
        except IndexCorrupt as damage:
            raise _damaged(self._stem, damage) from damage

    def has_none(self) -> bool:
        """Whether it is known that there are no entries."""
        return self._span is not None and self._span.stable_offset < 0

    def make_ready(self) -> None:
        """What an append may need of the file is done now. OSError, BatchCorrupt."""
        try:
            self.index.make_ready()
        except IndexCorrupt as damage:
            raise _damaged(self._stem, damage) from damage

    def append(self, entry: AbortedTxn) -> None:
        self.index.append(entry)
        # Of earlier entries nothing may be known: then they may begin anywhere.
        first = 0 if self._span is None else self._span.first_offset
        self._span = TransactionSpan(min(first, entry.first_offset), entry.last_stable_offset)

    def truncate_to(self, offset: int) -> None:
        index = self.index
        if index.size:
            index.truncate_to(offset)
            first = 0 if self._span is None else self._span.first_offset
            self._span = TransactionSpan(first if index.size else MAX_OFFSET, index.last_stable_offset())

    def is_sound(self) -> bool:
        """Whether the file, if there is one, can be an index of this segment. Reads it, and keeps only its span."""
        try:
            self._span = read_txn_index(self._disk, self._stem, self._base_offset).span()
        except BatchCorrupt:
            return False
        return True

    def note_absence(self) -> None:
        """There is no such file."""
        self._span = NO_TRANSACTIONS

    def begin(self) -> None:
        """Empty, whatever the file holds, to be filled from the batches."""
        self.attached = self._new()
        self._span = NO_TRANSACTIONS

    def let_go(self) -> None:
        """Nothing is appended for now: no entry stays in memory that the file has."""
        if self.attached is not None:
            self.attached.let_go()
