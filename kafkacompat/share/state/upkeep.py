"""Records that no request asks for: snapshots of cold share-partitions, and tombstones of deleted topics.

The runtime walks the states in stretches. What is decided here must be written before other requests are served.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from kafkacompat.api.share_services import SharePartitionKey
from kafkacompat.ids import Uuid
from kafkacompat.share.state.records import ShareRecord
from kafkacompat.share.state.share_coordinator_shard import ShareCoordinatorShard


def is_written_again(machine: ShareCoordinatorShard, key: SharePartitionKey) -> bool:
    """Whether the latest snapshot of a share-partition was written because it is cold."""
    state = machine.states.get(key)
    return state is None or state.offset.create_timestamp != state.offset.write_timestamp


def is_cold(machine: ShareCoordinatorShard, key: SharePartitionKey, now_ms: int) -> bool:
    """Whether the latest snapshot of a share-partition is old, however many updates followed it. One of the future is from
    before the clock was set back."""
    state = machine.states.get(key)
    if state is None:
        return False
    return not 0 <= now_ms - state.offset.write_timestamp < machine.env.cold_interval_ms


def cold_snapshots(
    machine: ShareCoordinatorShard, keys: Iterable[SharePartitionKey], now_ms: int
) -> list[ShareRecord]:
    """Snapshots that let the log be pruned although these share-partitions have not changed for long.

    If all share-partitions of the shard are written again, nothing can be gained: the caller then skips the round.
    """
    records: list[ShareRecord] = []
    for key in keys:
        if not is_cold(machine, key, now_ms):
            continue
        offset = machine.states[key].offset
        value = replace(offset, snapshot_epoch=offset.snapshot_epoch + 1, write_timestamp=now_ms)
        records.append(ShareRecord(key, value))
    return records


def tombstones_of_topics(
    machine: ShareCoordinatorShard, keys: Iterable[SharePartitionKey], deleted: Collection[Uuid]
) -> list[ShareRecord]:
    return [ShareRecord(key, None) for key in keys if key.topic_id in deleted and key in machine.states]
