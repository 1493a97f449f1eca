"""Producer ids out of blocks that the controller gives, the next block asked for before the current one ends.

Duty: api.context.ProducerIds. Knows nothing of producers. Follows Kafka: blocks of 1000, prefetch at 90 % use, so an id is
never given twice in the life of a cluster and a restart loses at most the rest of two blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.deferred import Deferred

PREFETCH_SHARE = 0.9


class BlockProducerIds:
    """`allocate` asks the controller: (first id, count) of a fresh block. Its failure is retried with the next request."""

    __slots__ = ("_allocate", "_asked", "_end", "_next", "_prefetch_at", "_spare")

    def __init__(self, allocate: Callable[[], Deferred[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._asked = False
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._spare: tuple[int, int] | None = None

    def next_producer_id(self) -> int | None:
        """A fresh id; None while a block is on its way (COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._next >= self._end:
            if self._spare is None:
                self._ask()
            self._take_spare()
            if self._next >= self._end:
                return None
        producer_id = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._spare is None:
            self._ask()
        return producer_id

    def prefetch(self) -> None:
        """Ask for the first block ahead of the first producer."""
        if self._next >= self._end and self._spare is None:
            self._ask()

    def _take_spare(self) -> None:
        if self._spare is not None:
            first, count = self._spare
            self._spare = None
            self._next, self._end = first, first + count
            self._prefetch_at = first + int(count * PREFETCH_SHARE)

    def _ask(self) -> None:
        if self._asked:
            return
        self._asked = True

        def arrived(done: Deferred[tuple[int, int]]) -> None:
            self._asked = False
            self._spare = done.result()

        self._allocate().on_done(arrived)
