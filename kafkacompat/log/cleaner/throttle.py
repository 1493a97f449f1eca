"""Holds the cleaner's threads to log.cleaner.io.max.bytes.per.second together, and ends their work when asked.

Duty: wait in the thread that moves bytes. Must not know: what is moved.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafkacompat.log.cleaner.work import CleaningStopped


class Throttle:
    """Call it with the bytes that are about to be moved. Any thread; raises CleaningStopped after `stop`."""

    def __init__(
        self, bytes_per_second: Callable[[], float], monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._free_at_s = 0.0
        """When what was let through until now will have used up the rate."""

    def __call__(self, size: int) -> None:
        with self._lock:
            now = self._monotonic_s()
            begin = max(self._free_at_s, now)
            self._free_at_s = begin + size / self._rate()
        if self._stopped.is_set() or (begin > now and self._stopped.wait(begin - now)):
            raise CleaningStopped("the node stops")

    def stop(self) -> None:
        self._stopped.set()
