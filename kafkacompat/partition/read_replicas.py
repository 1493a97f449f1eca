"""Which replica a consumer should rather read from: KIP-392's selector, asked by the leader.

It chooses among the leader and its in-sync followers that have the offset. Knows neither requests nor logs' contents. Setting:
replica.selector.class; Kafka's two selectors are known, by their Java names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError

if TYPE_CHECKING:
    from kafkacompat.partition.core import PartitionCore

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"


def selects_by_rack(selector_class: str | None) -> bool:
    """Whether followers are ever preferred. ConfigError for a class that is not to be had here."""
    if selector_class == RACK_AWARE:
        return True
    if selector_class and selector_class != LEADER_ONLY:
        raise ConfigError(
            "replica.selector.class", selector_class, f"only {RACK_AWARE} and {LEADER_ONLY} are served"
        )
    return False


def nearest_replica(
    core: PartitionCore, rack_id: str, offset: int, listener_name: str, now_ms: int
) -> int | None:
    """Another replica of that rack for a fetch at offset; None when the leader is to be read.

    The leader when it stands in the rack; else of the in-sync followers there the one with the most records, then the one
    caught up last, then the highest id.
    """
    brokers = core.standing.brokers
    leader = brokers.get(core.node_id)
    if not rack_id or leader is None or leader.rack == rack_id:
        return None
    best: tuple[int, int, int] | None = None
    for replica, follower in core.followers.items():
        broker = brokers.get(replica)
        if (
            replica in core.isr
            and broker is not None
            and not broker.fenced
            and broker.rack == rack_id
            and listener_name in broker.endpoints
            and follower.log_start_offset <= offset <= follower.log_end_offset
        ):
            candidate = follower.log_end_offset, follower.last_caught_up_ms - now_ms, replica
            if best is None or candidate > best:
                best = candidate
    return None if best is None else best[2]
