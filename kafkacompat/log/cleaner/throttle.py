"""Holds the cleaner's threads to log.cleaner.io.max.bytes.per.second together, and ends their work when asked.

Duty: wait in the thread that moves bytes. Must not know: what is moved. The setting may become any number while a thread waits;
zero and less let nothing through until it is changed, as in Kafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafkacompat.log.cleaner.work import CleaningStopped

LONGEST_WAIT_S = 1.0
"""Until the rate is looked at again."""


class Throttle:
    """Call it with the bytes that are about to be moved. Any thread; raises CleaningStopped after `stop`."""

    def __init__(
        self,
        bytes_per_second: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait` for so many seconds at most, and say whether it is to be stopped."""
        self._rate = bytes_per_second
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._owed = 0.0
        """Bytes that were let through and for which no time has passed yet, as of `_at_s`."""
        self._at_s = monotonic_s()

    def __call__(self, size: int) -> None:
        while True:
            with self._lock:
                wait_s = self._pay()
                if not wait_s:
                    self._owed += size
            if self._stopped.is_set() or (wait_s and self._wait(min(wait_s, LONGEST_WAIT_S))):
                raise CleaningStopped("the node stops")
            if not wait_s:
                return

    def stop(self) -> None:
        self._stopped.set()

    def _pay(self) -> float:
        """Take off what the time since the last look was worth; seconds until nothing is owed."""
        now_s, rate = self._monotonic_s(), self._rate()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if not self._owed:
            return 0.0
        if not rate > 0:
            return LONGEST_WAIT_S
        # In this order NaN, no time times an infinite rate, counts as nothing owed.
        self._owed = max(0.0, self._owed - elapsed_s * rate)
        return self._owed / rate
