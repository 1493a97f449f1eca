"""The aborted transactions of a segment: its .txnindex file."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkacompat.log.index import MAX_OFFSET, Index, IndexCorrupt, entry_type

_ENTRY = struct.Struct(">hqqqq")
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
    layout, entry_size, page_size = entry_type(_ENTRY)

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
