"""Limits the cleaner's threads together to log.cleaner.io.max.bytes.per.second, and ends their work on request.

The thread that moves bytes waits here. The setting may change to any number during a wait. At zero or less nothing
moves until it changes, as in Kafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafkacompat.log.cleaner.work import CleaningStopped

LONGEST_WAIT_S = 1.0
"""Seconds after which the rate is read again."""


class Throttle:
    """Call it with the number of bytes about to be moved. Any thread. Raises CleaningStopped after `stop`."""

    def __init__(
        self,
        bytes_per_second: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait` waits at most the given seconds and returns whether to stop."""
        self._rate = bytes_per_second
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self.moved_bytes = 0
        """Bytes that were allowed since the start."""
        self._owed = 0.0
        """Bytes already allowed but not yet paid for by elapsed time, as of `_at_s`."""
        self._at_s = monotonic_s()

    def __call__(self, size: int) -> None:
        while True:
            with self._lock:
                wait_s = self._pay()
                if not wait_s:
                    self._owed += size
                    self.moved_bytes += size
            if self._stopped.is_set() or (wait_s and self._wait(min(wait_s, LONGEST_WAIT_S))):
                raise CleaningStopped("the node stops")
            if not wait_s:
                return

    def stop(self) -> None:
        self._stopped.set()

    def _pay(self) -> float:
        """Subtract what the elapsed time was worth. Returns the seconds until nothing is owed."""
        now_s, rate = self._monotonic_s(), self._rate()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if not self._owed:
            return 0.0
        if not rate > 0:
            return LONGEST_WAIT_S
        # This order of arguments makes NaN (zero time at an infinite rate) count as nothing owed.
        self._owed = max(0.0, self._owed - elapsed_s * rate)
        return self._owed / rate
