"""Which transactional records and markers a cleaning may drop, batch by batch in log order.

It separates aborted from committed data, and finds markers that nothing in the log needs any more. It uses no files or
keys. A cleaning ends at or below the last stable offset, so every transaction in it has ended. Follows KIP-98's rules
for compacted logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.records.control import ControlType, parse_control_key

if TYPE_CHECKING:
    from kafkacompat.log.transaction_index import AbortedTxn
    from kafkacompat.records.batch import BatchHeader


class CleanedTransactions:
    """`keep_entry` is called with an aborted transaction whose marker is kept because its data was met."""

    __slots__ = ("_aborted", "_aborted_open", "_committed_open", "_met", "_next", "keep_entry")

    def __init__(self, aborted: Sequence[AbortedTxn], from_offset: int) -> None:
        """`aborted` has the aborted transactions of the whole log. Those that ended before `from_offset` are ignored."""
        self._aborted = sorted(
            (entry for entry in aborted if entry.last_offset >= from_offset),
            key=lambda entry: entry.first_offset,
        )
        self._next = 0
        self._aborted_open: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()
        """Producers of open aborted transactions whose data was met."""
        self._committed_open: set[int] = set()
        self.keep_entry: Callable[[AbortedTxn], None] = lambda entry: None

    def on_data(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction and is dropped."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted_open:
            self._met.add(header.producer_id)
            return True
        self._committed_open.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, key: bytes | None) -> bool:
        """Whether a control batch ends a transaction without data. `key` is its first key, None if the batch is empty."""
        self._reach(header.last_offset)
        if key is None:
            return True
        producer_id = header.producer_id
        control_type = parse_control_key(key)
        if control_type == ControlType.ABORT:
            entry = self._aborted_open.pop(producer_id, None)
            if entry is None or producer_id not in self._met:
                return True
            self._met.discard(producer_id)
            self.keep_entry(entry)
            return False
        if control_type == ControlType.COMMIT:
            if producer_id not in self._committed_open:
                return True
            self._committed_open.discard(producer_id)
        return False

    def _reach(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            entry = aborted[self._next]
            self._next += 1
            self._aborted_open.setdefault(entry.producer_id, entry)
