"""queued.max.request.bytes: the memory of all requests that are being received (SimpleMemoryPool). Pure.

A request takes its announced size at once, if any memory is left. So the pool may be overdrawn by one request, and a
request larger than what is left still makes progress. It gives the memory back when it is complete and handled, or its
client is gone. While nothing is left no further request is received, and small ones wait too.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.ports.network import MemoryReading


class MemoryPool:
    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self.available_bytes = size_bytes
        """Not positive: nothing is left."""
        self._waiting: dict[MemoryUser, None] = {}
        """In the order in which they began to wait. Empty while memory is left."""

    def read(self) -> MemoryReading:
        return MemoryReading(self.available_bytes, self._size_bytes - self.available_bytes)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take(self, size_bytes: int) -> bool:
        if self.available_bytes <= 0:
            return False
        self.available_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self.available_bytes += size_bytes
        if self.available_bytes > 0 and self._waiting:
            # All of them, because nobody else wakes the rest while memory is left.
            waiting, self._waiting = self._waiting, {}
            for user in waiting:
                user.when_left()

    def wait(self, user: MemoryUser) -> None:
        """Call `when_left` once, as soon as memory is left."""
        self._waiting[user] = None

    def forget(self, user: MemoryUser) -> None:
        self._waiting.pop(user, None)


class MemoryUser:
    """One connection's part of the pool."""

    __slots__ = ("_pool", "held_bytes", "when_left")

    def __init__(self, pool: MemoryPool, when_left: Callable[[], None]) -> None:
        self._pool = pool
        self.when_left = when_left
        self.held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Take memory for a request of this size; for none, if its size is not known yet (0). If nothing is left,
        return False and call `when_left` later."""
        if self._pool.take(size_bytes):
            self.held_bytes = size_bytes
            return True
        self._pool.wait(self)
        return False

    def release(self) -> None:
        if self.held_bytes:
            held, self.held_bytes = self.held_bytes, 0
            self._pool.give_back(held)

    def close(self) -> None:
        self._pool.forget(self)
        self.release()
