"""The lag of a group, from its committed offsets and the start and end offsets of the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkacompat.console.core.snapshot import GroupSeen, PartitionSeen


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. lag is None if the end offset is unknown, or if the partition does not exist."""

    topic: str
    partition: int
    committed: int
    latest: int | None
    lag: int | None
    """Records that the group has not read yet. A committed offset below the start of the log counts from the start."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """All partitions with a committed offset. lag is None if the lag of every partition is unknown."""

    partitions: tuple[PartitionLag, ...]
    lag: int | None


def group_lag(group: GroupSeen, partitions: Mapping[tuple[str, int], PartitionSeen]) -> GroupLag:
    """Return the lag of a group. `partitions` are by topic and number."""
    rows = []
    for (topic, number), committed in sorted(group.committed.items()):
        partition = partitions.get((topic, number))
        latest = partition.latest if partition else None
        lag = None
        if partition is not None and latest is not None:
            lag = max(0, latest - max(committed, partition.earliest or 0))
        rows.append(PartitionLag(topic, number, committed, latest, lag))
    known = [row.lag for row in rows if row.lag is not None]
    return GroupLag(tuple(rows), sum(known) if known else None)
