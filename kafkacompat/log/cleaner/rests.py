"""Logs whose cleaning took all memory: when each may be cleaned again, and with how much.

Duty: count, from what it is told. Must not know: logs, processes, clocks. The kernel ends the cleaner's process when memory is
short, and whatever is cleaned in the broker's own process next takes the broker along. So a log that cost a process rests, longer
each time, and comes back with half the buffers; and no process is begun for a while, for the shortage need not be this log's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kafkacompat.log.cleaner.job import CleanerLimits

Log = TypeVar("Log", bound=Hashable)

REST_MS = 60_000
REST_MOST_MS = 3_600_000
"""A log's rest doubles with each loss, up to this."""
PROCESS_REST_MS = 5_000
PROCESS_REST_MOST_MS = 300_000
"""As long as no process is begun after losses that followed one another."""
LEAST_MAP_BYTES = 1 << 20
LEAST_IO_BYTES = 64 << 10
"""What is left of the buffers at the least."""


class Rests(Generic[Log]):
    """`Log`: whatever stands for one; another of its name is another."""

    __slots__ = ("_losses", "_processes_from_ms", "_until_ms", "losses_in_turn")

    def __init__(self) -> None:
        self._losses: dict[Log, int] = {}
        self._until_ms: dict[Log, int] = {}
        self._processes_from_ms = 0
        self.losses_in_turn = 0
        """Since a process has last done its work."""

    def lost(self, log: Log, now_ms: int) -> int:
        """Cleaning this log came to its end for memory, or with its process; how long it rests, in ms."""
        losses = self._losses[log] = self._losses.get(log, 0) + 1
        rest_ms = min(REST_MS << min(losses - 1, 16), REST_MOST_MS)
        self._until_ms[log] = now_ms + rest_ms
        wait_ms = min(PROCESS_REST_MS << min(self.losses_in_turn, 16), PROCESS_REST_MOST_MS)
        self._processes_from_ms = now_ms + wait_ms
        self.losses_in_turn += 1
        return rest_ms

    def went_well(self, log: Log, in_process: bool) -> None:
        self._losses.pop(log, None)
        self._until_ms.pop(log, None)
        if in_process:
            self.losses_in_turn = 0

    def keep(self, is_there: Callable[[Log], bool]) -> None:
        """Forget all others."""
        for log in [log for log in self._losses if not is_there(log)]:
            del self._losses[log], self._until_ms[log]

    def may_clean(self, log: Log, now_ms: int) -> bool:
        return now_ms >= self._until_ms.get(log, now_ms)

    def may_begin_process(self, now_ms: int) -> bool:
        return now_ms >= self._processes_from_ms

    def has_lost(self, log: Log) -> bool:
        return log in self._losses

    def limits(self, log: Log, limits: CleanerLimits) -> CleanerLimits:
        """Half the buffers for each loss."""
        losses = self._losses.get(log, 0)
        return limits._replace(
            map_bytes=min(limits.map_bytes, max(limits.map_bytes >> losses, LEAST_MAP_BYTES)),
            io_bytes=min(limits.io_bytes, max(limits.io_bytes >> losses, LEAST_IO_BYTES)),
        )
