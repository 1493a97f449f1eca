"""Logs that have rolled and whose closed segments must be synced soon. Another module syncs them."""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.log.unified_log import UnifiedLog


class RolledLogs:
    """The waiting logs of each log directory, each once. Bounded by the number of logs."""

    __slots__ = ("_told", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[UnifiedLog, None]] = {}
        self._told: Callable[[str], None] = lambda place: None

    def watch(self, told: Callable[[str], None]) -> None:
        """`told` is called with a directory when the first of its logs waits."""
        self._told = told
        for place in list(self._waiting):
            told(place)

    def add(self, log: UnifiedLog) -> None:
        place = posixpath.dirname(log.directory)
        waiting = self._waiting.get(place)
        if waiting is None:
            self._waiting[place] = OrderedDict({log: None})
            self._told(place)
        else:
            waiting[log] = None

    def pop(self, place: str) -> UnifiedLog | None:
        """Remove and return the next log of a directory. None if there is none."""
        waiting = self._waiting.get(place)
        if waiting is None:
            return None
        log, _ = waiting.popitem(last=False)
        if not waiting:
            del self._waiting[place]
        return log
