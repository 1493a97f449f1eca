"""How far a share group has come in each partition, from its start offsets and the end offsets of the partitions.

How many records are in flight is not told by the protocol: only the leader knows, and it tells it in its metrics.
Without them these numbers are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkacompat.console.core.snapshot import PartitionSeen, ShareGroupSeen, ShareKey, ShareNumbers


def share_partitions(
    group: ShareGroupSeen,
    partitions: Mapping[tuple[str, int], PartitionSeen],
    numbers: Mapping[ShareKey, ShareNumbers],
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the rows of the group's partitions, and the sum of the known lags.

    `done` counts the records after the start that are accepted or archived, while an earlier one is not. It is null if
    the start, the end or the lag is unknown, and 0 if the end was read before the lag.
    """
    rows = []
    for (topic, number), stand in sorted((group.stands or {}).items()):
        partition = partitions.get((topic, number))
        latest = partition.latest if partition else None
        done = None
        if stand.start is not None and stand.lag is not None and latest is not None:
            done = max(0, latest - stand.start - stand.lag)
        told = numbers.get((group.group_id, topic, number))
        rows.append(
            {
                "topic": topic,
                "partition": number,
                "start": stand.start,
                "latest": latest,
                "lag": stand.lag,
                "done": done,
                "held": told.held if told else None,
                "oldest_lock_ms": told.oldest_lock_ms if told else None,
                "delivered": told.delivered if told else None,
                "archived": told.archived if told else None,
            }
        )
    known = [stand.lag for stand in (group.stands or {}).values() if stand.lag is not None]
    return rows, sum(known) if known else None
