"""When the acquisition locks of a share-partition end."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

TOLERATED = 64


class Locked:
    """What locks are held on."""

    __slots__ = ("queued_deadline_ms",)

    def __init__(self) -> None:
        self.queued_deadline_ms: int | None = None
        """The deadline of the entry that counts."""


L = TypeVar("L", bound=Locked)


class LockDeadlines(Generic[L]):
    """The earliest deadline of each batch. One timer serves all of them.

    An entry is not removed when its batch is acknowledged or its lock renewed. It is skipped later, or dropped with many
    others when half of the entries are of no use.
    """

    __slots__ = ("_heap", "_number", "_useless")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, L]] = []
        self._number = 0
        self._useless = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline_ms: int, batch: L) -> None:
        """A lock on a part of the batch ends then."""
        queued = batch.queued_deadline_ms
        if queued is not None:
            if queued <= deadline_ms:
                return
            self._useless += 1
        batch.queued_deadline_ms = deadline_ms
        self._number += 1
        heappush(self._heap, (deadline_ms, self._number, batch))

    def forget(self, batch: L) -> None:
        if batch.queued_deadline_ms is None:
            return
        batch.queued_deadline_ms = None
        self._useless += 1
        if self._useless > TOLERATED and self._useless * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].queued_deadline_ms == entry[0]]
            heapify(self._heap)
            self._useless = 0

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap:
            deadline_ms, _, batch = heap[0]
            if batch.queued_deadline_ms == deadline_ms:
                return deadline_ms
            heappop(heap)
            self._useless -= 1
        return None

    def due(self, now_ms: int) -> list[L]:
        """The batches of which a deadline may have passed. They are no longer queued."""
        batches = []
        while (deadline_ms := self.next_ms()) is not None and deadline_ms <= now_ms:
            batch = heappop(self._heap)[2]
            batch.queued_deadline_ms = None
            batches.append(batch)
        return batches
