"""The coordinators of groups, transactions and share-partitions: GroupMetadataManager, group-coordinator-metrics and their like
of Kafka's MBeans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    At,
    Families,
    Metric,
    Metrics,
    counter,
    gauge,
    gauges,
    histogram,
    mean_and_max,
)

if TYPE_CHECKING:
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.group.meters import GroupMeters
    from kafkacompat.meters import RecentTimes
    from kafkacompat.quota.rate import Counted
    from kafkacompat.share.share_coordinator import ShareCoordinator
    from kafkacompat.txn.add_partitions_to_txn_manager import VerifierMeter
    from kafkacompat.txn.transaction_coordinator import TransactionCoordinator

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
SHARE_GROUP_STATES = ("Empty", "Stable", "Dead")
STREAMS_GROUP_STATES = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead")
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
SHARD_STATES = ("loading", "active", "failed")
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
GROUP = "kafka_server_group_coordinator_metrics_"
SHARE = "kafka_server_share_coordinator_metrics_"
MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
VERIFICATIONS = "kafka_server_addpartitionstotxnmanager_verification"


@dataclass(slots=True)
class GroupCounts:
    """Groups by state. Apache Kafka counts them anew from time to time, and kafkacompat at each scrape."""

    classic: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUP_STATES, 0))
    consumer: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CONSUMER_GROUP_STATES, 0))
    share: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SHARE_GROUP_STATES, 0))
    streams: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS_GROUP_STATES, 0))


def _in_state(kind: str, state: str) -> Callable[[GroupCounts], int]:
    return lambda counts: int(getattr(counts, kind)[state])


GROUPS: Metrics[GroupCounts] = Metrics(
    "Groups that a broker coordinates",
    gauge(
        f"{MANAGER}numgroups", "Groups of the classic protocol.", lambda counts: sum(counts.classic.values())
    ),
    tuple(
        gauge(
            f"{MANAGER}numgroups{state.lower()}", f"Of these in state {state}.", _in_state("classic", state)
        )
        for state in GROUP_STATES
    ),
    gauge(
        f"{GROUP}protocol_classic_group_count",
        "Groups of the classic protocol.",
        lambda counts: sum(counts.classic.values()),
    ),
    tuple(
        gauge(
            f"{GROUP}state_{state.lower()}_classic_group_count",
            f"Groups of the classic protocol in state {state}.",
            _in_state("classic", state),
        )
        for state in GROUP_STATES
    ),
    gauge(
        f"{GROUP}protocol_consumer_group_count",
        "Groups of the consumer protocol.",
        lambda counts: sum(counts.consumer.values()),
    ),
    tuple(
        gauge(
            f"{GROUP}state_{state.lower()}_consumer_group_count",
            f"Groups of the consumer protocol in state {state}.",
            _in_state("consumer", state),
        )
        for state in CONSUMER_GROUP_STATES
    ),
    gauge(f"{GROUP}protocol_share_group_count", "Share groups.", lambda counts: sum(counts.share.values())),
    tuple(
        gauge(
            f"{GROUP}state_{state.lower()}_share_group_count",
            f"Share groups in state {state}.",
            _in_state("share", state),
        )
        for state in SHARE_GROUP_STATES
    ),
    gauge(
        f"{GROUP}protocol_streams_group_count", "Streams groups.", lambda counts: sum(counts.streams.values())
    ),
    tuple(
        gauge(
            f"{GROUP}state_{state.lower()}_streams_group_count",
            f"Streams groups in state {state}.",
            _in_state("streams", state),
        )
        for state in STREAMS_GROUP_STATES
    ),
)


def _in_shard_state(state: str) -> Callable[[At[GroupCoordinator]], int]:
    return lambda at: at.part.shard_states().count(state)


def _counted(
    name: str, text: str, read: Callable[[GroupMeters], Counted]
) -> tuple[Metric[At[GroupCoordinator]], Metric[At[GroupCoordinator]]]:
    return (
        gauge(
            f"{GROUP}{name}_count",
            f"{text}, since the start.",
            lambda at: read(at.part.meters).read(at.now_ms)[0],
        ),
        gauge(
            f"{GROUP}{name}_rate", f"{text}, per second.", lambda at: read(at.part.meters).read(at.now_ms)[1]
        ),
    )


GROUP_COORDINATOR: Metrics[At[GroupCoordinator]] = Metrics(
    "The group coordinator",
    gauge(
        f"{MANAGER}numoffsets",
        "Committed offsets of groups that this broker coordinates.",
        lambda at: at.part.offset_count(),
    ),
    gauge(
        f"{GROUP}offset_count",
        "The same number.",
        lambda at: at.part.offset_count(),
    ),
    tuple(
        gauge(
            f"{GROUP}state_{state}_num_partitions",
            f"Partitions of __consumer_offsets that are {state}.",
            _in_shard_state(state),
        )
        for state in SHARD_STATES
    ),
    _counted("offset_commit", "Offsets that were committed", lambda meters: meters.offset_commits),
    _counted("offset_expiration", "Offsets that have expired", lambda meters: meters.offset_expirations),
    _counted(
        "offset_deletion",
        "Offsets that an administrator has deleted",
        lambda meters: meters.offset_deletions,
    ),
    _counted(
        "group_completed_rebalance",
        "Rebalances that classic groups have completed",
        lambda meters: meters.completed_rebalances,
    ),
    _counted(
        "consumer_group_rebalance",
        "New epochs of consumer groups",
        lambda meters: meters.consumer_rebalances,
    ),
    _counted("share_group_rebalance", "New epochs of share groups", lambda meters: meters.share_rebalances),
    _counted(
        "streams_group_rebalance", "New epochs of streams groups", lambda meters: meters.streams_rebalances
    ),
)


def group_families(groups: GroupCoordinator, now_ms: int) -> Families:
    """Counts groups in steps. `now_ms` is monotonic."""
    counts = GroupCounts()
    by_kind = {
        "classic": counts.classic,
        "consumer": counts.consumer,
        "share": counts.share,
        "streams": counts.streams,
    }
    for counted, (kind, state) in enumerate(groups.group_states(), 1):
        if kind in by_kind:
            by_kind[kind][state] += 1
        if counted % COUNTED_A_STEP == 0:
            yield None
    yield from GROUPS.of(counts)
    yield from GROUP_COORDINATOR.of(At(groups, now_ms))


class TransactionReading(NamedTuple):
    coordinator: TransactionCoordinator
    verifications: VerifierMeter
    """Of the questions of partitions' leaders to coordinators."""


TRANSACTIONS: Metrics[TransactionReading] = Metrics(
    "Transactions",
    gauge(
        f"{MARKERS}unknowndestinationqueuesize",
        "Markers of transactions that wait for a partition's leader.",
        lambda each: each.coordinator.markers.without_leader,
    ),
    gauge(
        f"{MARKERS}logappendretryqueuesize",
        "Transactions that have all their markers, and whose end the log has refused: it is written again.",
        lambda each: each.coordinator.markers.ends_to_write_again,
    ),
    histogram(
        f"{VERIFICATIONS}timems",
        "ms to ask a coordinator whether a transaction may write to partitions",
        lambda each: each.verifications.times_ms,
    ),
    counter(
        f"{VERIFICATIONS}failurerate_count",
        "Partitions that a transaction was not allowed to write to.",
        lambda each: each.verifications.failures,
    ),
)


def _in_share_shard_state(state: str) -> Callable[[At[ShareCoordinator]], int]:
    return lambda at: at.part.shard_states().count(state)


SHARE_COORDINATOR: Metrics[At[ShareCoordinator]] = Metrics(
    "The share coordinator",
    counter(
        f"{SHARE}write",
        "Writes of the states of share-partitions.",
        lambda at: at.part.writes.read(at.now_ms)[0],
    ),
    gauge(
        f"{SHARE}write_rate",
        "Writes of the states of share-partitions, per second.",
        lambda at: at.part.writes.read(at.now_ms)[1],
    ),
    mean_and_max(
        f"{SHARE}write_latency_",
        "time of a request that writes states, its replication included, in the last minute, ms; NaN: none",
        lambda at: at.part.write_times.mean_and_max(at.now_ms),
    ),
    gauges(
        f"{SHARE}last_pruned_offset",
        "Offset below which a partition of __share_group_state was last pruned.",
        ("topic", "partition"),
        lambda at: [
            ({"topic": SHARE_STATE_TOPIC, "partition": str(partition)}, offset)
            for partition, offset in at.part.sweeps.pruned.items()
        ],
    ),
    tuple(
        gauge(
            f"{SHARE}state_{state}_num_partitions",
            f"Partitions of __share_group_state that are {state}.",
            _in_share_shard_state(state),
        )
        for state in SHARD_STATES
    ),
)
LOADS: Metrics[At[RecentTimes]] = Metrics(
    "Loads of coordinators: `group`, `transaction` and `share`",
    mean_and_max(
        "kafka_server_{coordinator}_coordinator_metrics_partition_load_time_",
        "time to load a partition of the coordinator's topic, in the last minute, ms; NaN: none was loaded",
        lambda at: at.part.mean_and_max(at.now_ms),
    ),
)
