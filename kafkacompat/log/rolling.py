"""When a segment is old enough to be rolled, and which logs have rolled: what they closed is to be synced soon.

segment.ms, segment.jitter.ms, and max.compaction.lag.ms where a topic is compacted. The jitter keeps segments that began together
from rolling together. Segments are not known here, nor who syncs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.log import PartitionLog


def roll_after_ms(config: LogConfig, randrange: Callable[[int], int] | None) -> int:
    """Age in ms of the next segment's records at which it is rolled; no jitter without `randrange`."""
    wait_ms = config.segment_ms
    if config.compact:
        # What is in the active segment is never cleaned, so it has to be closed in time.
        wait_ms = min(wait_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, wait_ms)
    if jitter_ms > 0 and randrange is not None:
        wait_ms -= randrange(jitter_ms + 1)
    return wait_ms


class RolledLogs:
    """By log directory, each once. Bounded by the logs that there are."""

    __slots__ = ("_told", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, dict[PartitionLog, None]] = {}
        self._told: Callable[[str], None] = lambda place: None

    def watch(self, told: Callable[[str], None]) -> None:
        """`told` hears of a directory that one of its logs waits, where none did."""
        self._told = told
        for place in list(self._waiting):
            told(place)

    def add(self, log: PartitionLog) -> None:
        place = posixpath.dirname(log.directory)
        waiting = self._waiting.get(place)
        if waiting is None:
            self._waiting[place] = {log: None}
            self._told(place)
        else:
            waiting[log] = None

    def pop(self, place: str) -> PartitionLog | None:
        """The next one of a directory; None when there is none."""
        waiting = self._waiting.get(place)
        if waiting is None:
            return None
        log = next(iter(waiting))
        del waiting[log]
        if not waiting:
            del self._waiting[place]
        return log
