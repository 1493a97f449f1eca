"""How far a group is behind, from what it committed and where the partitions start and end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkacompat.console.core.snapshot import GroupSeen, PartitionSeen


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group; lag is None where the partition's end is not known, or the partition is gone."""

    topic: str
    partition: int
    committed: int
    latest: int | None
    lag: int | None
    """Records that the group has yet to read. A commit below the first kept record counts from that record."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """All committed partitions of a group; lag is None if none of them is known."""

    partitions: tuple[PartitionLag, ...]
    lag: int | None


def group_lag(group: GroupSeen, partitions: Mapping[tuple[str, int], PartitionSeen]) -> GroupLag:
    """Lag of a group; partitions by topic and number."""
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
