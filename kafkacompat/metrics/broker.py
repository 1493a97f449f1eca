"""A broker's metrics of no single partition: state, purgatories, fetch sessions, ISR changes, fetchers, throttles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.metrics.families import Metrics, Sample, counter, counters, gauge, gauges

if TYPE_CHECKING:
    from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.replica_fetcher_manager import ReplicaFetcherManager
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.share.delayed_share_fetch import DelayedShareFetch

PURGATORY = "kafka_server_delayedoperationpurgatory_"
SESSIONS = "kafka_server_fetchsessioncache_"
REPLICAS = "kafka_server_replicamanager_"
FETCHERS = "kafka_server_replicafetchermanager_"
FETCHER_LABELS = {"clientId": "Replica"}

STATE: Metrics[int] = Metrics(
    "The broker",
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
        lambda state: state,
    ),
)


class Waiting(NamedTuple):
    """What has requests that wait, and fetch sessions."""

    partitions: ReplicaManager
    fetches: FetchEngine
    share_fetches: DelayedOperationPurgatory[DelayedShareFetch]

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By kind of request, how many wait, and for how many partitions they wait together."""
        return {
            "Produce": self.partitions.wakeups.produces.sizes,
            "Fetch": self.fetches.purgatory.sizes,
            "ShareFetch": self.share_fetches.sizes,
            "DeleteRecords": self.partitions.wakeups.deletions.sizes,
        }


WAITING: Metrics[Waiting] = Metrics(
    "Requests that wait, and fetch sessions",
    gauges(
        f"{PURGATORY}numdelayedoperations",
        "Requests that wait.",
        ("delayedOperation",),
        lambda of: [({"delayedOperation": kind}, waiting) for kind, (waiting, _) in of.sizes().items()],
    ),
    gauges(
        f"{PURGATORY}purgatorysize",
        "Requests that wait, once for each partition that they wait for.",
        ("delayedOperation",),
        lambda of: [({"delayedOperation": kind}, watched) for kind, (_, watched) in of.sizes().items()],
    ),
    counters(
        "kafka_server_delayedfetchmetrics_expires",
        "Fetches that waited as long as they may.",
        ("fetcherType",),
        lambda of: [
            ({"fetcherType": "follower"}, of.fetches.purgatory.followers.expirations),
            ({"fetcherType": "consumer"}, of.fetches.purgatory.consumers.expirations),
        ],
    ),
    counter(
        "kafka_server_delayedproducemetrics_expires",
        "Partitions of produce requests that were not replicated in time.",
        lambda of: of.partitions.wakeups.produces.expirations,
    ),
    gauge(f"{SESSIONS}numincrementalfetchsessions", "Fetch sessions.", lambda of: len(of.fetches.sessions)),
    gauge(
        f"{SESSIONS}numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions.",
        lambda of: of.fetches.sessions.partition_count,
    ),
    counter(
        f"{SESSIONS}incrementalfetchsessionevictions",
        "Fetch sessions that had to make room.",
        lambda of: of.fetches.sessions.evictions,
    ),
)


def _lags(replication: ReplicaFetcherManager) -> Iterator[Sample]:
    for leader, index, each in replication.followed():
        topic, partition = each.core.topic_partition
        yield (
            {
                "clientId": f"ReplicaFetcherThread-{index}-{leader}",
                "topic": topic,
                "partition": str(partition),
            },
            each.lag,
        )


REPLICATION: Metrics[ReplicaFetcherManager] = Metrics(
    "Replication",
    counter(
        f"{REPLICAS}isrshrinks",
        "Replicas taken out of in-sync sets.",
        lambda manager: manager.isr_changes.shrinks,
    ),
    counter(
        f"{REPLICAS}isrexpands",
        "Replicas taken into in-sync sets.",
        lambda manager: manager.isr_changes.expands,
    ),
    counter(
        f"{REPLICAS}failedisrupdates",
        "Changes of in-sync sets that were refused.",
        lambda manager: manager.isr_changes.failed,
    ),
    gauges(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Offsets between a follower and its leader's high watermark.",
        ("clientId", "topic", "partition"),
        _lags,
    ),
    gauges(
        f"{FETCHERS}maxlag",
        "The largest of these lags.",
        ("clientId",),
        lambda manager: [
            (FETCHER_LABELS, max((each.lag for _, _, each in manager.followed()), default=0)),
        ],
    ),
    gauges(
        f"{FETCHERS}failedpartitionscount",
        "Partitions that are not followed any more because of an error.",
        ("clientId",),
        lambda manager: [(FETCHER_LABELS, sum(each.failed for _, _, each in manager.followed()))],
    ),
    gauges(
        f"{FETCHERS}minfetchrate",
        "Fetches of the slowest fetcher, per second; 0 without fetchers.",
        ("clientId",),
        lambda manager: [(FETCHER_LABELS, manager.min_fetch_rate())],
    ),
)


class Throttled(NamedTuple):
    """Bytes per second. None: there was nothing yet, and there is no series, as in Kafka."""

    leader: float | None
    follower: float | None
    moves: float | None


THROTTLED: Metrics[Throttled] = Metrics(
    "Throttled replication, from the first byte on",
    gauge(
        "kafka_server_leaderreplication_byte_rate",
        "Bytes sent to throttled replicas, per second.",
        lambda rates: rates.leader,
    ),
    gauge(
        "kafka_server_followerreplication_byte_rate",
        "Bytes fetched for throttled replicas, per second.",
        lambda rates: rates.follower,
    ),
    gauge(
        "kafka_server_alterlogdirsreplication_byte_rate",
        "Bytes copied to other log directories, per second.",
        lambda rates: rates.moves,
    ),
)


class Placements(NamedTuple):
    """Of replicas that are placed in, or moved between, log directories."""

    queued_assignments: int
    max_move_lag: int


PLACEMENTS: Metrics[Placements] = Metrics(
    "Replicas in log directories",
    gauge(
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
        "Replicas whose log directory the controller does not know yet.",
        lambda each: each.queued_assignments,
    ),
    gauges(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "The most offsets that a replica's copy in another directory does not have yet.",
        ("clientId",),
        lambda each: [({"clientId": "ReplicaAlterLogDirs"}, each.max_move_lag)],
    ),
)
