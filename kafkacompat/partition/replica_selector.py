"""The preferred read replica of a consumer: KIP-392's selector, called by the leader.

It chooses among the leader and its in-sync followers that have the offset. Requests and log contents are unknown here.
Setting: replica.selector.class, with the Java names of Kafka's two selectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"


def selects_by_rack(selector_class: str | None) -> bool:
    """Whether the selector may prefer followers. Raises ConfigError for any other class."""
    if selector_class == RACK_AWARE:
        return True
    if selector_class and selector_class != LEADER_ONLY:
        raise ConfigError(
            "replica.selector.class", selector_class, f"only {RACK_AWARE} and {LEADER_ONLY} are served"
        )
    return False


def nearest_replica(
    core: Partition, rack_id: str, offset: int, listener_name: str, now_ms: int
) -> int | None:
    """Another replica in the rack for a fetch at `offset`. None if the consumer must read from the leader.

    The leader is preferred if it is in the rack. Of the in-sync followers there, the order is: the most records, then
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
