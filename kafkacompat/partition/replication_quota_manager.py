"""The replication throttle, which leaves bandwidth for clients while partitions move (KIP-73).

It compares the rate of the last seconds with the limit, for the partitions that a topic's settings name. A pure core
except for the clock passed to it; fetches and sockets are unknown here. Replicas in the ISR are never throttled,
because they would drop out of it. Settings: leader and follower.replication.throttled.rate and .replicas,
replication.quota.window.num and .size.seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock

UNLIMITED = 2**63 - 1
ALL_REPLICAS = "*"


class ByteRate:
    """Bytes per second over the last `windows` windows. Older windows are dropped one by one."""

    __slots__ = ("_samples", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[int]] = deque()
        """[start of the window, bytes], oldest first; at most `windows` of them."""
        self._total = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        self._forget(now_ms)
        self._total += size_bytes
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            self._samples[-1][1] += size_bytes
        else:
            self._samples.append([now_ms, size_bytes])

    def bytes_per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return self._total * 1000 / max(now_ms - self._samples[0][0], self._window_ms)

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._windows * self._window_ms:
            self._total -= self._samples.popleft()[1]


class ReplicationQuotaManager:
    """The throttle of one direction on one node: what it sends as a leader, or fetches as a follower."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        limit: Callable[[], int],
        replicas_of: Callable[[LogConfig], tuple[str, ...]],
        windows: int,
        window_ms: int,
    ) -> None:
        """`limit` returns bytes per second and is called each time. `replicas_of` returns a topic's setting of the
        throttled replicas."""
        self._node_id = node_id
        self._clock = clock
        self._limit = limit
        self._replicas_of = replicas_of
        self._rate = ByteRate(windows, window_ms)
        self._has_recorded = False

    def bytes_per_second(self) -> float | None:
        """Of the throttled replicas. None: there was none yet."""
        return self._rate.bytes_per_second(self._clock.monotonic_ms()) if self._has_recorded else None

    def is_limited(self) -> bool:
        return self._limit() < UNLIMITED

    def is_throttled(self, core: Partition) -> bool:
        replicas = self._replicas_of(core.log.config)
        return bool(replicas) and (
            ALL_REPLICAS in replicas or f"{core.topic_partition.partition}:{self._node_id}" in replicas
        )

    def should_throttle(self, core: Partition, replica_id: int) -> bool:
        """Whether this replica of the partition gets nothing now."""
        return (
            replica_id not in core.isr
            and self.is_throttled(core)
            and self._rate.bytes_per_second(self._clock.monotonic_ms()) > self._limit()
        )

    def record(self, core: Partition, size_bytes: int) -> None:
        """Count bytes sent or fetched."""
        if self.is_throttled(core):
            self._has_recorded = True
            self._rate.record(size_bytes, self._clock.monotonic_ms())
