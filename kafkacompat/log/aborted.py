"""The aborted transactions of one segment: its `.txnindex` in memory while it is needed, and else what tells whether it is.

Duty: load, let go, answer for a range. Must not know: batches, other segments, when the file is written (segment.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.index import (
    NO_TRANSACTIONS,
    AbortedEntry,
    IndexCorrupt,
    TransactionIndex,
    TransactionSpan,
)
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

TXN_INDEX_SUFFIX = ".txnindex"


def read_txn_index(disk: Disk, stem: str, base_offset: int) -> TransactionIndex:
    """Empty without a file. BatchCorrupt when the file can be no index of this segment."""
    try:
        index = TransactionIndex(base_offset, disk.read_bytes(stem + TXN_INDEX_SUFFIX))
        index.check()
    except FileNotFoundError:
        return TransactionIndex(base_offset)
    except IndexCorrupt as damage:
        raise BatchCorrupt(f"the aborted transactions of {stem}: {damage}") from damage
    return index


class SegmentAborted:
    """Offsets absolute. What reads the file raises BatchCorrupt when it is damaged; OSError passes through."""

    __slots__ = ("_base_offset", "_disk", "_span", "loaded", "stem")

    def __init__(self, disk: Disk, stem: str, base_offset: int) -> None:
        self._disk = disk
        self.stem = stem
        self._base_offset = base_offset
        self.loaded: TransactionIndex | None = None
        self._span: TransactionSpan | None = None
        """Of the index while it is not in memory; None while nobody has looked."""

    @property
    def index(self) -> TransactionIndex:
        if self.loaded is None:
            self.loaded = read_txn_index(self._disk, self.stem, self._base_offset)
        return self.loaded

    @property
    def is_held(self) -> bool:
        """Whether entries are in memory."""
        return self.loaded is not None and bool(self.loaded.data)

    def find(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedEntry], bool]:
        """See TransactionIndex.collect. Reads the file only when it may have entries of the range."""
        span = self._span
        if self.loaded is None and span is not None and span.first_offset >= upper_bound_offset:
            return [], span.stable_offset >= upper_bound_offset
        return self.index.collect(fetch_offset, upper_bound_offset)

    def is_sound(self) -> bool:
        """Whether the file, if there is one, can be an index of this segment. Reads it, and keeps only its span."""
        try:
            self._span = read_txn_index(self._disk, self.stem, self._base_offset).span()
        except BatchCorrupt:
            return False
        return True

    def note_absence(self) -> None:
        """There is no such file."""
        self._span = NO_TRANSACTIONS

    def begin(self) -> None:
        """Empty, whatever the file holds, to be filled from the batches."""
        self.loaded = TransactionIndex(self._base_offset)

    def forget(self) -> None:
        """Let the entries go, if the file has them all."""
        index = self.loaded
        if index is not None and index.written == len(index.data):
            self._span = index.span()
            self.loaded = None
