"""A broker's metrics of no single partition: state, purgatories, fetch sessions, ISR changes, fetchers, coordinators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    Families,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
)

if TYPE_CHECKING:
    from kafkacompat.coordinator.service import GroupCoordinator
    from kafkacompat.coordinator.share_service import ShareCoordinator
    from kafkacompat.meters import RecentTimes
    from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.partition_fetch_state import PartitionFetchState
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.partition.replication import Replication
    from kafkacompat.share.delayed_share_fetch import DelayedShareFetch

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
SHARE_GROUP_STATES = ("Empty", "Stable", "Dead")
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
SHARD_STATES = ("loading", "active", "failed")


def broker_families(state: int) -> Families:
    yield gauge(
        "kafka_server_kafkaserver_brokerstate",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
        state,
    )


def waiting_families(
    partitions: ReplicaManager,
    fetches: FetchEngine,
    share_fetches: DelayedOperationPurgatory[DelayedShareFetch],
) -> Families:
    """Requests that wait, and fetch sessions."""
    sizes = {
        "Produce": partitions.wakeups.produces.sizes,
        "Fetch": fetches.purgatory.sizes,
        "ShareFetch": share_fetches.sizes,
        "DeleteRecords": partitions.wakeups.deletions.sizes,
    }
    name = "kafka_server_delayedoperationpurgatory_"
    yield gauges(
        f"{name}numdelayedoperations",
        "Requests that wait.",
        [({"delayedOperation": kind}, waiting) for kind, (waiting, _) in sizes.items()],
    )
    yield gauges(
        f"{name}purgatorysize",
        "Requests that wait, once for each partition that they wait for.",
        [({"delayedOperation": kind}, watched) for kind, (_, watched) in sizes.items()],
    )
    waiting = fetches.purgatory
    yield counters(
        "kafka_server_delayedfetchmetrics_expires",
        "Fetches that waited as long as they may.",
        [
            ({"fetcherType": "follower"}, waiting.followers.expirations),
            ({"fetcherType": "consumer"}, waiting.consumers.expirations),
        ],
    )
    yield counter(
        "kafka_server_delayedproducemetrics_expires",
        "Partitions of produce requests that were not replicated in time.",
        partitions.wakeups.produces.expirations,
    )
    sessions, name = fetches.sessions, "kafka_server_fetchsessioncache_"
    yield gauge(f"{name}numincrementalfetchsessions", "Fetch sessions.", len(sessions))
    yield gauge(
        f"{name}numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions.",
        sessions.partition_count,
    )
    yield counter(
        f"{name}incrementalfetchsessionevictions",
        "Fetch sessions that had to make room.",
        sessions.evictions,
    )


def replication_families(replication: Replication) -> Families:
    changes, name = replication.isr_changes, "kafka_server_replicamanager_"
    yield counter(f"{name}isrshrinks", "Replicas taken out of in-sync sets.", changes.shrinks)
    yield counter(f"{name}isrexpands", "Replicas taken into in-sync sets.", changes.expands)
    yield counter(f"{name}failedisrupdates", "Changes of in-sync sets that were refused.", changes.failed)
    followed = replication.followed()
    yield None
    yield gauges(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Offsets between a follower and its leader's high watermark.",
        _lags(followed),
    )
    labels, name = {"clientId": "Replica"}, "kafka_server_replicafetchermanager_"
    lag = max((each.lag for _, _, each in followed), default=0)
    failed = sum(each.failed for _, _, each in followed)
    yield gauges(f"{name}maxlag", "The largest of these lags.", [(labels, lag)])
    yield gauges(f"{name}failedpartitionscount", "Partitions whose fetching failed.", [(labels, failed)])


def _lags(followed: Sequence[tuple[int, int, PartitionFetchState]]) -> Iterator[Sample]:
    for leader, index, each in followed:
        topic, partition = each.core.topic_partition
        yield (
            {
                "clientId": f"ReplicaFetcherThread-{index}-{leader}",
                "topic": topic,
                "partition": str(partition),
            },
            each.lag,
        )


def group_families(groups: GroupCoordinator) -> Families:
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
    name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    yield gauge(name, "Groups of the classic protocol that this broker coordinates.", sum(classic.values()))
    for state, count in classic.items():
        yield gauge(f"{name}{state.lower()}", f"Of these in state {state}.", count)
    name = "kafka_server_group_coordinator_metrics_"
    yield gauge(
        f"{name}protocol_classic_group_count", "Groups of the classic protocol.", sum(classic.values())
    )
    yield gauge(
        f"{name}protocol_consumer_group_count", "Groups of the consumer protocol.", sum(consumer.values())
    )
    for state, count in consumer.items():
        text = f"Groups of the consumer protocol in state {state}."
        yield gauge(f"{name}state_{state.lower()}_consumer_group_count", text, count)
    yield gauge(
        f"{name}consumer_group_rebalance_count",
        "New epochs of consumer groups since the start.",
        groups.consumer_group_rebalances,
    )
    yield gauge(f"{name}protocol_share_group_count", "Share groups.", sum(share.values()))
    for state, count in share.items():
        yield gauge(
            f"{name}state_{state.lower()}_share_group_count", f"Share groups in state {state}.", count
        )
    yield gauge(
        f"{name}share_group_rebalance_count",
        "New epochs of share groups since the start.",
        groups.share_group_rebalances,
    )
    for shard_state in SHARD_STATES:
        yield gauge(
            f"{name}state_{shard_state}_num_partitions",
            f"Partitions of __consumer_offsets that are {shard_state}.",
            shards.count(shard_state),
        )


def share_coordinator_families(coordinator: ShareCoordinator, now_ms: int) -> Families:
    """`now_ms` is monotonic."""
    name = "kafka_server_share_coordinator_metrics_"
    yield counter(f"{name}write", "Writes of the states of share-partitions.", coordinator.writes)
    mean, longest = coordinator.write_times.mean_and_max(now_ms)
    text = "time of a request that writes states, its replication included, in the last minute, ms; NaN: none"
    yield gauge(f"{name}write_latency_avg", f"Mean {text}.", mean)
    yield gauge(f"{name}write_latency_max", f"Longest {text}.", longest)
    yield gauges(
        f"{name}last_pruned_offset",
        "Offset below which a partition of __share_group_state was last pruned.",
        [
            ({"topic": SHARE_STATE_TOPIC, "partition": str(partition)}, offset)
            for partition, offset in coordinator.sweeps.pruned.items()
        ],
    )
    shards = coordinator.shard_states()
    for shard_state in SHARD_STATES:
        yield gauge(
            f"{name}state_{shard_state}_num_partitions",
            f"Partitions of __share_group_state that are {shard_state}.",
            shards.count(shard_state),
        )


def load_families(coordinator: str, times: RecentTimes, now_ms: int) -> Families:
    """`coordinator`: group, transaction or share. `now_ms` is monotonic."""
    mean, longest = times.mean_and_max(now_ms)
    name, text = (
        f"kafka_server_{coordinator}_coordinator_metrics_partition_load_time_",
        "time to load a partition",
    )
    yield gauge(f"{name}avg", f"Mean {text} in the last minute, ms; NaN: none was loaded.", mean)
    yield gauge(f"{name}max", f"Longest {text} in the last minute, ms; NaN: none was loaded.", longest)
