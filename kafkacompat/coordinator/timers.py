"""Timers of one shard.

A key has at most one pending operation, the latest. A key is the object itself and not its name, because a name may be
reused. Every heartbeat delays the end of a session, so a delay postpones the timer and sets no new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers

TimerKey = tuple[Hashable, ...]
Operation = Callable[[int], Any]


class _Entry:
    __slots__ = ("_timers", "deadline_ms", "handle", "key", "operation")

    def __init__(self, timers: ShardTimers, key: TimerKey, deadline_ms: int, operation: Operation) -> None:
        self._timers = timers
        self.key = key
        self.deadline_ms = deadline_ms
        self.operation = operation
        self.handle: TimerHandle = timers.alarms.call_at(deadline_ms, self.ring)

    def move(self, deadline_ms: int) -> None:
        is_earlier, self.deadline_ms = deadline_ms < self.deadline_ms, deadline_ms
        if is_earlier:
            self.handle.cancel()
            self.handle = self._timers.alarms.call_at(deadline_ms, self.ring)
        else:
            self.handle.postpone(deadline_ms)

    def ring(self) -> None:
        self._timers.rings(self)


class ShardTimers:
    """`run` is called with the operation when it is due, and handles the result."""

    __slots__ = ("_clock", "_entries", "_run", "alarms")

    def __init__(self, clock: Clock, timers: Timers, run: Callable[[Operation], None]) -> None:
        self._clock = clock
        self.alarms = timers
        self._run = run
        self._entries: dict[TimerKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: TimerKey, delay_ms: int, operation: Operation) -> None:
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(self, key, deadline_ms, operation)
        else:
            entry.operation = operation
            entry.move(deadline_ms)

    def reschedule(self, key: TimerKey, delay_ms: int) -> bool:
        """Like `schedule`, with the operation that the key has. False if it has none."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        entry.move(self._clock.monotonic_ms() + delay_ms)
        return True

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.handle.cancel()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._entries

    def cancel_all(self) -> Iterator[int]:
        """Cancel all timers in steps. The runtime ignores timers that fire meanwhile."""
        while self._entries:
            _, entry = self._entries.popitem()
            entry.handle.cancel()
            yield 1

    def rings(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._run(entry.operation)
