"""A broker's metrics of no single partition: state, purgatories, fetch sessions, ISR changes, fetchers, coordinators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.metrics.families import (
    Families,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
)
from kafkacompat.metrics.histograms import histogram_families

if TYPE_CHECKING:
    from kafkacompat.meters import RecentTimes
    from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.following import PartitionFetchState
    from kafkacompat.partition.replica_fetcher_manager import ReplicaFetcherManager
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.share.delayed_share_fetch import DelayedShareFetch
    from kafkacompat.share.share_coordinator import ShareCoordinator
    from kafkacompat.txn.add_partitions_to_txn_manager import VerifierMeter
    from kafkacompat.txn.transaction_coordinator import TransactionCoordinator

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


def replication_families(replication: ReplicaFetcherManager) -> Families:
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
    yield gauges(
        f"{name}minfetchrate",
        "Fetches of the slowest fetcher, per second; 0 without fetchers.",
        [(labels, replication.min_fetch_rate())],
    )


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


def share_coordinator_families(coordinator: ShareCoordinator, now_ms: int) -> Families:
    """`now_ms` is monotonic."""
    name = "kafka_server_share_coordinator_metrics_"
    writes, rate = coordinator.writes.read(now_ms)
    yield counter(f"{name}write", "Writes of the states of share-partitions.", writes)
    yield gauge(f"{name}write_rate", "Writes of the states of share-partitions, per second.", rate)
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


def throttle_families(leader: float | None, follower: float | None, moves: float | None) -> Families:
    """Bytes per second: of throttled replicas, as a leader and as a follower, and of moves between directories. None: there
    was nothing yet, and there is no series, as in Kafka."""
    for kind, rate, text in (
        ("leader", leader, "sent to throttled replicas"),
        ("follower", follower, "fetched for throttled replicas"),
        ("alterlogdirs", moves, "copied to other log directories"),
    ):
        if rate is not None:
            yield gauge(f"kafka_server_{kind}replication_byte_rate", f"Bytes {text}, per second.", rate)


def directory_families(queued_assignments: int, max_move_lag: int) -> Families:
    """Of replicas that are placed in, or moved between, log directories."""
    yield gauge(
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
        "Replicas whose log directory the controller does not know yet.",
        queued_assignments,
    )
    yield gauges(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "The most offsets that a replica's copy in another directory does not have yet.",
        [({"clientId": "ReplicaAlterLogDirs"}, max_move_lag)],
    )


def transaction_families(coordinator: TransactionCoordinator, verifications: VerifierMeter) -> Families:
    """The transaction coordinator, and the questions of partitions' leaders to coordinators."""
    name = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    yield gauge(
        f"{name}unknowndestinationqueuesize",
        "Markers of transactions that wait for a partition's leader.",
        coordinator.markers.without_leader,
    )
    yield gauge(
        f"{name}logappendretryqueuesize",
        "Transactions that have all their markers, and whose end the log has refused: it is written again.",
        coordinator.markers.ends_to_write_again,
    )
    name = "kafka_server_addpartitionstotxnmanager_verification"
    yield from histogram_families(
        f"{name}timems",
        "ms to ask a coordinator whether a transaction may write to partitions",
        verifications.times_ms,
    )
    yield counter(
        f"{name}failurerate_count",
        "Partitions that a transaction was not allowed to write to.",
        verifications.failures,
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
