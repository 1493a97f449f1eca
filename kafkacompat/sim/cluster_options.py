"""The options of one simulated cluster, drawn from its seed, and its topics. Different runs are difficult in different ways.

Clients and oracles derive a topic's purpose from its name alone.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kafkacompat.config.topic import TIERED
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkacompat.sim.chance import Chance

MIN_CLUSTER_EVENTS = 2000
MIN_CLUSTER_FAULTS = 4
REPLICATION_FACTOR = 3
MIN_ISR = 2
SHARE_OF_RIGHTS = 0.2
SHARE_OF_TIERED_GROUPS = 0.35
LOG_DIRECTORIES = ("/data", "/more")
METADATA_DIRECTORY = "/metadata"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Times in ms unless named _us; probabilities 0..1."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    """A node that is also a controller has both roles."""
    has_elr: bool
    """eligible.leader.replicas.version 1 (KIP-966)."""
    delay_us: int
    delay_tail: float
    """Share of messages that take ten times as long. Messages on one connection stay in order."""
    loss: float
    """Share of messages at which their connection is reset."""
    duplication: float
    """0, because connections duplicate nothing."""
    slow_purpose: str
    """Connections with this purpose are slow, so their messages arrive after later messages of other connections."""
    slow_us: int
    sync_us: int
    sync_stall: float
    drift: float
    fault_interval_ms: int
    fault_ms: int
    faulty_ms: int
    """The duration of the faulty phase."""
    partitions: int
    producers: int
    think_ms: int
    """Maximum pause of a producer between two batches to one partition."""
    admin_interval_ms: int
    """Mean pause between reassignments, elections, deletions of records, new topics."""
    election_ms: int
    quorum_fetch_ms: int
    session_ms: int
    heartbeat_ms: int
    lag_ms: int
    fetch_wait_ms: int
    fetch_backoff_ms: int
    fetch_bytes: int
    snapshot_bytes: int
    """Bytes of metadata log between two snapshots."""
    no_op_ms: int
    """The active controller writes a record without content at this interval. 0 in most runs, because it costs events."""
    encodes: bool
    """Every message is encoded and decoded."""
    rebalances: bool
    reads_nearby: bool
    """Consumers read from the replica in their rack (KIP-392)."""
    transactional_producers: int
    """0 in half of the runs. Then there is no transaction coordinator."""
    transaction_ms: int
    """Timeout of a transaction."""
    verification_us: int
    """Maximum additional delay of a leader's requests to a transaction coordinator."""
    directories: int
    """Log directories of a broker. With two of them, replicas move between directories (KIP-113, KIP-858)."""
    move_bytes: int
    """Bytes per second. A low rate makes moves last, so that logs are cleaned during them. 0: no limit."""
    changes_voters: bool
    """The quorum's voters are not in the settings, and are added and removed (KIP-853)."""
    remake_ms: int
    """Mean time that one topic exists, and that it is missing, before it is deleted or created again. 0: no such topic."""

    members: int
    """Members of a group, which join, leave, vanish and commit. 0 in two of three runs."""
    change_ms: int
    """Mean pause between changes of settings, features and numbers of partitions. 0: no changes."""

    segment_bytes: int
    """For compacted topics and topics with retention, including the coordinators' topics. 0: no such topics."""
    retention_ms: int
    retention_bytes: int
    """For the topic with retention."""
    unclean: bool
    """One topic allows unclean leader elections."""

    secured_clients: int
    """Clients that authenticate themselves. 0 in most runs. Then there is no authorizer."""
    rights_ms: int
    """Mean pause between changes of access control entries and users."""

    consumer_members: int = 0
    """Members of another group that use the consumer protocol (KIP-848). 0 unless `consumer_group_shape` is asked for."""
    embedded_members: int = 0
    """Members of that group that use the classic protocol, with the subscription of a consumer."""
    static_members: int = 0
    """Of the former, those with an instance id."""
    static_embedded_members: int = 0
    twins: tuple[bool, ...] = ()
    """More members with the instance id of the first static one. True: of the classic protocol."""
    assignment_ms: int = 0
    """group.consumer.assignment.interval.ms."""

    share_workers: int = 0
    """Members of a share group (KIP-932). 0 unless `share_group_shape` is asked for."""
    share_lock_ms: int = 0
    """How long a member may hold a record."""
    share_deliveries: int = 0
    """How often a record is delivered at most."""
    share_record_locks: int = 0
    """How many records of a partition are in flight at most."""
    share_updates_per_snapshot: int = 0
    share_sweep_ms: int = 0
    """Time between prunings of the states' log, and after which a state is cold."""
    share_dead_letters: bool = False
    """The share group has a dead-letter topic (KIP-1191)."""
    share_letters_copy: bool = False
    """Dead letters have key, value and headers of the record."""
    share_letters_made: bool = False
    """The brokers create the dead-letter topic when it is needed."""
    share_letters_switch_ms: int = 0
    """Mean pause between changes of whether the dead-letter topic takes dead letters. 0: it always does."""

    streams_members: int = 0
    """Members of a streams group (KIP-1071). 0 unless `streams_group_shape` is asked for."""
    streams_processes: int = 0
    """Processes that these members share."""
    streams_static_members: int = 0
    streams_twin: bool = False
    """One more member has the instance id of the first static one."""
    streams_standbys: int = 0
    streams_endpoints: bool = False
    """The members tell where they answer interactive queries."""
    streams_late: str = ""
    """What the application does with a topic that comes late: "alone", "joined" or "paired". Empty: there is none."""
    streams_upgrade_ms: int = 0
    """Mean pause between upgrades of the application, for which its group is deleted. 0: none."""
    streams_shutdown_ms: int = 0
    """Mean pause between requests of a member to shut the application down. 0: none."""
    streams_from_level: int = 0
    """The metadata.version of a cluster without streams groups, whose features are raised while members try to join. 0: the latest
    one, with streams groups."""
    streams_delay_ms: int = 0
    """group.streams.initial.rebalance.delay.ms."""

    tier_segment_bytes: int = 0
    """Of the producers' topics, which are tiered then. 0, which means no remote store, unless `tier_shape` is asked for."""
    tier_last_offset: bool = False
    """follower.fetch.last.tiered.offset.enable."""
    tier_local_bytes: int = -2
    tier_local_ms: int = -2
    """local.retention.bytes and local.retention.ms."""

    mirror_ms: int = 0
    """Mean pause between steps with mirrors of another cluster. 0, which means no other cluster, unless `mirror_shape` is asked
    for."""

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
PURPOSES = ("alter-partition", "alter-partition", "heartbeat", "raft-fetch", "replica-fetcher-0")
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1, 2, 3), (1, 2, 3)),
    ((1, 2, 3), (1, 2, 3, 4)),
    ((1, 2, 3), (1, 2, 3, 4)),
    ((1, 2, 3), (2, 3, 4, 5)),
    ((1,), (2, 3, 4)),
    ((1,), (1, 2, 3, 4)),
)
"""Pairs of (controllers, brokers)."""


def rack_of(node_id: int) -> str:
    return f"rack-{node_id % 3}"


def draw_cluster_options(seed: int) -> ClusterOptions:
    chance = Chance(seed, "cluster options")

    def sometimes(probability: float, value: float) -> float:
        return value * chance.uniform() if chance.happens(probability) else 0.0

    # Separate random streams, so that new options do not change the others.
    transactions = Chance(seed, "transaction options")
    life = Chance(seed, "life options")
    groups = Chance(seed, "group options")
    logs = Chance(seed, "kept logs")
    moves = Chance(seed, "slow moves")
    rights = Chance(seed, "rights")
    idle = Chance(seed, "idle")
    has_rights = rights.happens(SHARE_OF_RIGHTS)
    has_groups = seed % 3 == 2
    segment_bytes = logs.between(700, 2_000) if logs.happens(0.4) else 0
    retention_ms = logs.between(800, 6_000) if logs.happens(0.7) else -1
    controllers, brokers = SHAPES[chance.randrange(len(SHAPES))]
    heartbeat_ms = chance.between(150, 400)
    return ClusterOptions(
        controllers=controllers,
        brokers=brokers,
        has_elr=chance.happens(0.75),
        delay_us=chance.between(300, 4_000),
        delay_tail=sometimes(0.5, 0.1),
        loss=sometimes(0.4, 0.01),
        duplication=0.0,
        slow_purpose=PURPOSES[chance.randrange(len(PURPOSES))],
        slow_us=chance.between(20_000, 1_500_000) if chance.happens(0.5) else 0,
        sync_us=chance.between(100, 6_000),
        sync_stall=sometimes(0.4, 0.05),
        drift=sometimes(0.4, 0.05),
        fault_interval_ms=chance.between(300, 900),
        fault_ms=chance.between(300, 2_500),
        faulty_ms=chance.between(9_000, 12_000),
        partitions=chance.between(1, 3),
        producers=chance.between(1, 2),
        think_ms=chance.between(40, 400),
        admin_interval_ms=chance.between(500, 2_000),
        election_ms=chance.between(150, 500),
        quorum_fetch_ms=chance.between(400, 1_000),
        session_ms=heartbeat_ms * chance.between(3, 5),
        heartbeat_ms=heartbeat_ms,
        lag_ms=chance.between(600, 1_500),
        fetch_wait_ms=chance.between(150, 300),
        fetch_backoff_ms=chance.between(40, 200),
        fetch_bytes=(300, 1_000, 100_000)[chance.randrange(3)],
        snapshot_bytes=(2_500, 8_000, 1_000_000)[chance.randrange(3)],
        no_op_ms=idle.between(100, 600) if idle.happens(0.2) else 0,
        encodes=chance.happens(0.1),
        rebalances=chance.happens(0.5),
        reads_nearby=chance.happens(0.4),
        transactional_producers=transactions.between(1, 2) if transactions.happens(0.5) else 0,
        transaction_ms=transactions.between(600, 6_000),
        verification_us=transactions.between(20_000, 400_000) if transactions.happens(0.5) else 0,
        directories=2 if life.happens(0.4) else 1,
        move_bytes=moves.between(300, 3_000) if moves.happens(0.5) else 0,
        remake_ms=life.between(100, 1_500) if life.happens(0.4) else 0,
        changes_voters=life.happens(0.5) and len(controllers) > 1,
        change_ms=groups.between(300, 1_500) if has_groups and groups.happens(0.6) else 0,
        members=groups.between(2, 3) if has_groups else 0,
        segment_bytes=segment_bytes,
        retention_ms=retention_ms,
        retention_bytes=logs.between(700, 5_000) if retention_ms < 0 or logs.happens(0.5) else -1,
        unclean=logs.happens(0.3),
        secured_clients=rights.between(2, 3) if has_rights else 0,
        rights_ms=rights.between(50, 500),
    )


def consumer_group_shape(seed: int) -> dict[str, Any]:
    """Return the options of a cluster with a group of both protocols, and little else. They are not drawn with the others,
    because additional clients would change every run."""
    chance = Chance(seed, "consumer groups")
    statics = Chance(seed, "static members")
    consumers, embedded = chance.between(1, 3), chance.between(0, 2)
    static_consumers, static_embedded = statics.between(0, consumers), statics.between(0, embedded)
    has_twin = static_consumers + static_embedded > 0 and statics.happens(0.4)
    return {
        "consumer_members": consumers,
        "embedded_members": embedded,
        "static_members": static_consumers,
        "static_embedded_members": static_embedded,
        "twins": (statics.happens(0.5),) if has_twin else (),
        "remake_ms": statics.between(300, 1_500) if statics.happens(0.5) else 0,
        "assignment_ms": chance.between(100, 600) if chance.happens(0.3) else 0,
        "partitions": chance.between(2, 5),
        "change_ms": chance.between(500, 2_000) if chance.happens(0.4) else 0,
        # A conversion is one batch with the records of all members, and must fit into a segment.
        "segment_bytes": chance.between(4_000, 8_000) if chance.happens(0.4) else 0,
        "producers": 1,
        "think_ms": 400,
        "members": 0,
        "transactional_producers": 0,
        "secured_clients": 0,
    }


def share_group_shape(seed: int) -> dict[str, Any]:
    """Return the options of a cluster with a share group, and little else. They are not drawn with the others, because
    additional clients would change every run."""
    chance, letters = Chance(seed, "share groups"), Chance(seed, "dead letters")
    return {
        "share_workers": chance.between(2, 4),
        "share_lock_ms": chance.between(1_000, 2_000),
        "share_deliveries": chance.between(2, 5),
        "share_record_locks": 100,
        "share_updates_per_snapshot": (2, 10, 500)[chance.randrange(3)],
        "share_sweep_ms": chance.between(300, 3_000),
        "partitions": chance.between(1, 3),
        "change_ms": chance.between(500, 2_000) if chance.happens(0.2) else 0,
        "segment_bytes": 0,
        "producers": 1,
        "think_ms": chance.between(100, 500),
        "share_dead_letters": letters.happens(0.5),
        "share_letters_copy": letters.happens(0.5),
        "share_letters_made": letters.happens(0.3),
        "share_letters_switch_ms": letters.between(300, 3_000) if letters.happens(0.4) else 0,
        "remake_ms": 0,
        "unclean": False,
        "members": 0,
        "transactional_producers": 0,
        "secured_clients": 0,
    }


def streams_group_shape(seed: int) -> dict[str, Any]:
    """Return the options of a cluster with a streams group, and little else. They are not drawn with the others, because
    additional clients would change every run."""
    chance = Chance(seed, "streams groups")
    members = chance.between(2, 5)
    statics = chance.between(0, 2) if chance.happens(0.6) else 0
    return {
        "streams_members": members,
        "streams_processes": chance.between(1, members),
        "streams_static_members": statics,
        "streams_twin": statics > 0 and chance.happens(0.4),
        "streams_standbys": chance.between(0, 2),
        "streams_endpoints": chance.happens(0.4),
        "streams_late": ("", "alone", "joined", "paired")[chance.randrange(4)],
        "streams_upgrade_ms": chance.between(1_500, 5_000) if chance.happens(0.4) else 0,
        "streams_shutdown_ms": chance.between(3_000, 8_000) if chance.happens(0.3) else 0,
        "streams_delay_ms": chance.between(100, 600) if chance.happens(0.5) else 0,
        "streams_from_level": (25, 27, 30)[chance.randrange(3)] if chance.happens(0.3) else 0,
        "assignment_ms": chance.between(100, 600) if chance.happens(0.4) else 0,
        "remake_ms": chance.between(500, 2_000) if chance.happens(0.5) else 0,
        "partitions": chance.between(2, 3),
        "change_ms": chance.between(500, 2_000) if chance.happens(0.4) else 0,
        "segment_bytes": chance.between(6_000, 10_000) if chance.happens(0.4) else 0,
        "producers": 1,
        "think_ms": 400,
        "members": 0,
        "transactional_producers": 0,
        "secured_clients": 0,
    }


def tier_shape(seed: int) -> dict[str, Any]:
    """Return the options of a cluster with a remote store, in some seeds with a share group, and little else. They are not
    drawn with the others, because additional clients would change every run."""
    chance = Chance(seed, "tiers")
    retention_ms = chance.between(1_500, 6_000) if chance.happens(0.5) else -1
    shares = Chance(seed, "share groups of tiers").happens(SHARE_OF_TIERED_GROUPS)
    return (share_group_shape(seed) if shares else {}) | {
        "tier_segment_bytes": chance.between(700, 1_600),
        "tier_last_offset": Chance(seed, "last tiered offset").happens(0.5),
        "tier_local_bytes": chance.between(0, 2_000),
        "tier_local_ms": chance.between(100, 1_500) if chance.happens(0.5) else -2,
        "retention_ms": retention_ms,
        "retention_bytes": chance.between(4_000, 9_000) if retention_ms < 0 or chance.happens(0.5) else -1,
        "partitions": chance.between(1, 2),
        "producers": 1,
        "think_ms": chance.between(40, 200),
        "remake_ms": chance.between(500, 2_500) if chance.happens(0.5) else 0,
        "unclean": chance.happens(0.3),
        "segment_bytes": 0,
        "change_ms": 0,
        "members": 0,
        "secured_clients": 0,
    }


def mirror_shape(seed: int) -> dict[str, Any]:
    """Return the options of a cluster that mirrors another one, or is mirrored, and little else. They are not drawn with the
    others, because additional clients would change every run."""
    chance = Chance(seed, "mirrors")
    return {
        "mirror_ms": chance.between(400, 2_000),
        "partitions": 1,
        "producers": 1,
        "think_ms": 600,
        "fault_interval_ms": chance.between(600, 1_800),
        "faulty_ms": chance.between(18_000, 24_000),
        "admin_interval_ms": chance.between(1_000, 3_000),
        "segment_bytes": 0,
        "remake_ms": 0,
        "unclean": False,
        "change_ms": 0,
        "members": 0,
        "transactional_producers": 0,
        "secured_clients": 0,
    }


TOPIC = "t0"
"""The first topic, which is always there. Groups use it."""
MADE_ANEW = "again"
"""The topic that is deleted and created again, each time with a new id."""
COMPACTED, RETAINED, UNCLEAN = "latest", "recent", "unclean"
COORDINATORS_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)
DEAD_LETTERS = "dlq.jobs"
"""Takes the dead letters of the share group."""
APPLICATION, LATE = "app", "orders"
"""The streams group, whose internal topics begin with its name, and a topic that it reads."""
MIRRORED, REMADE = "mirrored", "mirrored.anew"
"""Topics that one cluster mirrors from another. The second one is deleted and made again at its source."""
APART = (COMPACTED, RETAINED, UNCLEAN)
"""Topics with their own oracles. Transactions and groups do not use them."""
DELETE_RETENTION_MS = 2_500
"""The retention time of tombstones in a compacted topic."""


def is_for_producers(topic: str) -> bool:
    """Whether producers use the topic. Internal topics belong to the coordinators or to the streams application, dead letters
    to the brokers."""
    return not (
        topic.startswith("__") or topic == DEAD_LETTERS or is_of_application(topic) or is_mirrored(topic)
    )


def is_mirrored(topic: str) -> bool:
    """At its source as well. Their clients are in `mirrors`."""
    return topic in (MIRRORED, REMADE)


def is_of_application(topic: str) -> bool:
    return topic.startswith(f"{APPLICATION}-")


def is_for_transactions(topic: str) -> bool:
    """Whether transactions use the topic. Deleting a topic would delete a part of a transaction."""
    return is_for_producers(topic) and topic != MADE_ANEW and topic not in APART


def is_compacted(topic: str) -> bool:
    return topic == COMPACTED or topic in COORDINATORS_TOPICS


def min_isr(topic: str) -> int:
    """If records may be lost, a leader accepts writes alone, so that some are lost."""
    return 1 if topic == UNCLEAN else MIN_ISR


def is_tiered(options: ClusterOptions, topic: str) -> bool:
    return options.tier_segment_bytes > 0 and is_for_producers(topic)


def tier_settings(options: ClusterOptions) -> dict[str, str]:
    """Return the settings of a topic that keeps everything. Without a remote store there are none."""
    if not options.tier_segment_bytes:
        return {}
    return {
        TIERED: "true",
        "internal.segment.bytes": str(options.tier_segment_bytes),
        "index.interval.bytes": "150",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "local.retention.bytes": str(options.tier_local_bytes),
        "local.retention.ms": str(options.tier_local_ms),
    }


def kept_topics(options: ClusterOptions) -> dict[str, dict[str, str]]:
    """Return the settings of the additional topics that are created at the beginning."""
    segments = {"internal.segment.bytes": str(options.segment_bytes)}
    topics = {}
    if options.segment_bytes:
        topics[COMPACTED] = {
            **segments,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.2",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
        }
        topics[RETAINED] = {
            **segments,
            "retention.ms": str(options.retention_ms),
            "retention.bytes": str(options.retention_bytes),
        }
    if options.tier_segment_bytes:
        topics[RETAINED] = {
            **tier_settings(options),
            "retention.ms": str(options.retention_ms),
            "retention.bytes": str(options.retention_bytes),
        }
    if options.unclean:
        topics[UNCLEAN] = {
            **tier_settings(options),
            "unclean.leader.election.enable": "true",
            "min.insync.replicas": "1",
        }
    return topics


def coordinators_settings(options: ClusterOptions) -> dict[str, str]:
    """Return the settings that the coordinators' topics get once they exist."""
    return {
        "internal.segment.bytes": str(options.segment_bytes),
        "min.cleanable.dirty.ratio": "0.2",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
    }
