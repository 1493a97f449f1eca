"""Timers of one shard.

A key has at most one pending operation, the latest. A key is the object itself and not its name, because a name may be
reused. Every heartbeat delays the end of a session, so a delay only changes the deadline: the old timer fires early,
and is set again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers

TimerKey = tuple[Hashable, ...]
Operation = Callable[[int], Any]


class _Entry:
    __slots__ = ("_timers", "alarm_ms", "deadline_ms", "handle", "key", "operation")

    def __init__(self, timers: ShardTimers, key: TimerKey, deadline_ms: int, operation: Operation) -> None:
        self._timers = timers
        self.key = key
        self.deadline_ms = deadline_ms
        self.alarm_ms = deadline_ms
        self.operation = operation
        self.handle: TimerHandle | None = None

    def ring(self) -> None:
        self._timers.rings(self)


class ShardTimers:
    """`run` is called with the operation when it is due, and handles the result."""

    __slots__ = ("_clock", "_entries", "_run", "_timers")

    def __init__(self, clock: Clock, timers: Timers, run: Callable[[Operation], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._run = run
        self._entries: dict[TimerKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: TimerKey, delay_ms: int, operation: Operation) -> None:
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self, key, deadline_ms, operation)
            self._arm(entry)
            return
        entry.operation = operation
        self._move(entry, deadline_ms)

    def reschedule(self, key: TimerKey, delay_ms: int) -> bool:
        """Like `schedule`, with the operation that the key has. False if it has none."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._move(entry, self._clock.monotonic_ms() + delay_ms)
        return True

    def _move(self, entry: _Entry, deadline_ms: int) -> None:
        entry.deadline_ms = deadline_ms
        if deadline_ms < entry.alarm_ms:
            if entry.handle is not None:
                entry.handle.cancel()
            self._arm(entry)

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.handle is not None:
            entry.handle.cancel()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._entries

    def cancel_all(self) -> Iterator[int]:
        """Cancel all timers in steps. The runtime ignores timers that fire meanwhile."""
        while self._entries:
            _, entry = self._entries.popitem()
            if entry.handle is not None:
                entry.handle.cancel()
            yield 1

    def _arm(self, entry: _Entry) -> None:
        entry.alarm_ms = entry.deadline_ms
        entry.handle = self._timers.call_at(entry.alarm_ms, entry.ring)

    def rings(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is not entry:
            return
        if entry.deadline_ms > entry.alarm_ms and entry.deadline_ms > self._clock.monotonic_ms():
            self._arm(entry)
            return
        del self._entries[entry.key]
        self._run(entry.operation)
