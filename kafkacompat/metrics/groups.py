"""The group coordinator: GroupMetadataManager and group-coordinator-metrics of Kafka's MBeans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.metrics.broker import SHARD_STATES
from kafkacompat.metrics.families import COUNTED_A_STEP, Families, gauge

if TYPE_CHECKING:
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.group.meters import GroupMeters

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
SHARE_GROUP_STATES = ("Empty", "Stable", "Dead")
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
NAME = "kafka_server_group_coordinator_metrics_"


def group_families(groups: GroupCoordinator, now_ms: int) -> Families:
    """`now_ms` is monotonic."""
    classic = dict.fromkeys(GROUP_STATES, 0)
    consumer = dict.fromkeys(CONSUMER_GROUP_STATES, 0)
    share = dict.fromkeys(SHARE_GROUP_STATES, 0)
    by_kind = {"classic": classic, "consumer": consumer, "share": share}
    for counted, (kind, state) in enumerate(groups.group_states(), 1):
        if kind in by_kind:
            by_kind[kind][state] += 1
        if counted % COUNTED_A_STEP == 0:
            yield None
    shards = groups.shard_states()
    name = f"{MANAGER}numgroups"
    yield gauge(
        f"{MANAGER}numoffsets",
        "Committed offsets of groups that this broker coordinates.",
        groups.offset_count(),
    )
    yield gauge(name, "Groups of the classic protocol that this broker coordinates.", sum(classic.values()))
    for state, count in classic.items():
        yield gauge(f"{name}{state.lower()}", f"Of these in state {state}.", count)
    yield gauge(
        f"{NAME}protocol_classic_group_count", "Groups of the classic protocol.", sum(classic.values())
    )
    yield gauge(
        f"{NAME}protocol_consumer_group_count", "Groups of the consumer protocol.", sum(consumer.values())
    )
    for state, count in consumer.items():
        text = f"Groups of the consumer protocol in state {state}."
        yield gauge(f"{NAME}state_{state.lower()}_consumer_group_count", text, count)
    yield gauge(f"{NAME}protocol_share_group_count", "Share groups.", sum(share.values()))
    for state, count in share.items():
        yield gauge(
            f"{NAME}state_{state.lower()}_share_group_count", f"Share groups in state {state}.", count
        )
    for shard_state in SHARD_STATES:
        yield gauge(
            f"{NAME}state_{shard_state}_num_partitions",
            f"Partitions of __consumer_offsets that are {shard_state}.",
            shards.count(shard_state),
        )
    yield from _meter_families(groups.meters, now_ms)


def _meter_families(meters: GroupMeters, now_ms: int) -> Families:
    for name, text, counted in (
        ("offset_commit", "Offsets that were committed", meters.offset_commits),
        ("offset_expiration", "Offsets that have expired", meters.offset_expirations),
        ("offset_deletion", "Offsets that an administrator has deleted", meters.offset_deletions),
        (
            "group_completed_rebalance",
            "Rebalances that classic groups have completed",
            meters.completed_rebalances,
        ),
        ("consumer_group_rebalance", "New epochs of consumer groups", meters.consumer_rebalances),
        ("share_group_rebalance", "New epochs of share groups", meters.share_rebalances),
    ):
        count, rate = counted.read(now_ms)
        yield gauge(f"{NAME}{name}_count", f"{text}, since the start.", count)
        yield gauge(f"{NAME}{name}_rate", f"{text}, per second.", rate)
