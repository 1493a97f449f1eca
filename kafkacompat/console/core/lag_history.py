"""The lag of groups over time, as the looks at the cluster found it. Bounded in groups and points. The time is a parameter."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

from kafkacompat.console.core.lag import group_lag
from kafkacompat.console.core.snapshot import Snapshot

SAMPLE_MS: Final = 10_000
MAX_POINTS: Final = 720
"""Of a group: two hours."""
MAX_GROUPS: Final = 1_000
"""The history of further groups is not kept."""


def lags_of(snapshot: Snapshot) -> dict[str, int]:
    """Return the lag of each group for which it is known. With many groups this takes long: call it in a thread."""
    partitions = {
        (topic.name, partition.partition): partition
        for topic in snapshot.topics
        for partition in topic.partitions
    }
    found = {group.group_id: group_lag(group, partitions).lag for group in snapshot.groups}
    for shared in snapshot.share_groups:
        known = [stand.lag for stand in (shared.stands or {}).values() if stand.lag is not None]
        found[shared.group_id] = sum(known) if known else None
    return {group: lag for group, lag in found.items() if lag is not None}


class LagHistory:
    """A ring of points for each group. While the broker is away, and while a lag is not known, there are none."""

    __slots__ = ("_lags", "_last_ms", "_times")

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._times: dict[str, array[int]] = {}
        self._lags: dict[str, array[int]] = {}

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for the next point. A clock that was set back is no reason to wait."""
        return self._last_ms is None or not 0 <= now_ms - self._last_ms < SAMPLE_MS

    def add(self, now_ms: int, lags: Mapping[str, int]) -> None:
        """Add a point for each group. Points later than now are those of a clock that was set back since, and are dropped."""
        if self._last_ms is not None and now_ms <= self._last_ms:
            self._times.clear()
            self._lags.clear()
        self._last_ms = now_ms
        for group in [
            group for group, times in self._times.items() if now_ms - times[-1] > MAX_POINTS * SAMPLE_MS
        ]:
            del self._times[group], self._lags[group]
        for group, lag in lags.items():
            if group not in self._times:
                if len(self._times) >= MAX_GROUPS:
                    continue
                self._times[group], self._lags[group] = array("q"), array("q")
            for points, value in ((self._times[group], now_ms), (self._lags[group], lag)):
                points.append(value)
                del points[:-MAX_POINTS]

    def of(self, group: str) -> list[tuple[int, int]]:
        """Return (time, lag) of the two hours before the last sample, oldest first."""
        if group not in self._times or self._last_ms is None:
            return []
        first_ms = self._last_ms - MAX_POINTS * SAMPLE_MS
        points = zip(self._times[group], self._lags[group], strict=True)
        return [(time_ms, lag) for time_ms, lag in points if time_ms > first_ms]
