"""Checks that no fetch waits although records are available: after each event, every parked fetch of the node.

A forgotten fetch is still answered when its maximum wait is over. Nothing is lost and everything continues, but every
acks=all produce waits that long. Only this check notices it. It shares no code with the fetch engine except the lists
of parked fetches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.sim.breach import Breach

if TYPE_CHECKING:
    from kafkacompat.partition.fetch import DelayedFetch, FetchEngine
    from kafkacompat.partition.replica_manager import ReplicaManager


def check_parked(node_id: int, partitions: ReplicaManager, fetches: FetchEngine) -> None:
    """Raise Breach if a fetch with min_bytes 1 waits although a partition that it may read here has records for it."""
    for waiter in (*fetches.purgatory.followers.all(), *fetches.purgatory.consumers.all()):
        if waiter.parameters.min_bytes <= 1:
            _check(node_id, partitions, waiter)


def _check(node_id: int, partitions: ReplicaManager, waiter: DelayedFetch) -> None:
    parameters = waiter.parameters
    for asked in waiter.context.partitions:
        core = partitions.by_id.get((asked.topic_id, asked.partition))
        if core is None or not core.is_leader or asked.current_leader_epoch not in (-1, core.leader_epoch):
            continue
        log = core.log
        if parameters.replica_id >= 0:
            end = log.log_end_offset
        else:
            end = log.last_stable_offset if parameters.read_committed else log.high_watermark
        if log.log_start_offset <= asked.fetch_offset < end:
            reader = f"node {parameters.replica_id}" if parameters.replica_id >= 0 else "a consumer"
            raise Breach(
                "no fetch waits for what is there",
                f"{reader} waits at node {node_id} for {core.topic_partition} from {asked.fetch_offset}, there is all to {end}",
            )
