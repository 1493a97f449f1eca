"""Logs whose cleaning has used up the memory: when each may be cleaned again, and with which limits.

It counts the losses that the cleaner reports; logs, processes and clocks are unknown here. When memory is short the
kernel kills the cleaner's process. A cleaning inside the broker would then put the broker at risk. So a log that lost
a process rests, longer each time, and returns with half the buffers. Also no process starts for a while, since the
shortage may have another cause than this log.
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
"""The longest time without a process after consecutive losses."""
LEAST_MAP_BYTES = 1 << 20
LEAST_IO_BYTES = 64 << 10
"""The lower bound of the I/O buffers."""


class Rests(Generic[Log]):
    """`Log` is any object that identifies a log. A new log of the same name must be another object."""

    __slots__ = ("_losses", "_processes_from_ms", "_until_ms", "losses_in_turn")

    def __init__(self) -> None:
        self._losses: dict[Log, int] = {}
        self._until_ms: dict[Log, int] = {}
        self._processes_from_ms = 0
        self.losses_in_turn = 0
        """Losses since a process last completed its work."""

    def lost(self, log: Log, now_ms: int) -> int:
        """Record that a cleaning of this log ran out of memory or lost its process. Returns its rest in ms."""
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
        """Forget all other logs."""
        for log in [log for log in self._losses if not is_there(log)]:
            del self._losses[log], self._until_ms[log]

    def may_clean(self, log: Log, now_ms: int) -> bool:
        return now_ms >= self._until_ms.get(log, now_ms)

    def may_begin_process(self, now_ms: int) -> bool:
        return now_ms >= self._processes_from_ms

    def has_lost(self, log: Log) -> bool:
        return log in self._losses

    def limits(self, log: Log, limits: CleanerLimits) -> CleanerLimits:
        """The limits with the buffers halved for each loss."""
        losses = self._losses.get(log, 0)
        return limits._replace(
            map_bytes=min(limits.map_bytes, max(limits.map_bytes >> losses, LEAST_MAP_BYTES)),
            io_bytes=min(limits.io_bytes, max(limits.io_bytes >> losses, LEAST_IO_BYTES)),
        )
