"""The options of one simulated cluster, drawn from its seed: each run is harsh in ways of its own."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kafkacompat.sim.chance import Chance

MIN_CLUSTER_EVENTS = 2000
MIN_CLUSTER_FAULTS = 4
REPLICATION_FACTOR = 3
MIN_ISR = 2
LOG_DIRECTORIES = ("/data", "/more")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Times in ms unless named _us; probabilities 0..1."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    """A node in both has both roles."""
    has_elr: bool
    """eligible.leader.replicas.version 1 (KIP-966)."""
    delay_us: int
    delay_tail: float
    """Share of messages that take ten times as long; on one connection nothing overtakes."""
    loss: float
    """Share of messages at which their connection is reset."""
    duplication: float
    """None: a connection doubles nothing."""
    slow_purpose: str
    """Connections of this purpose are slow: what they carry is overtaken by what others do."""
    slow_us: int
    sync_us: int
    sync_stall: float
    drift: float
    fault_interval_ms: int
    fault_ms: int
    faulty_ms: int
    """How long faults come."""
    partitions: int
    producers: int
    think_ms: int
    """A producer's pause between two batches to one partition, at most."""
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
    """Of metadata log between two snapshots."""
    encodes: bool
    """Every message goes through its wire form."""
    rebalances: bool
    reads_nearby: bool
    """Consumers read from the replica of their rack (KIP-392)."""
    transactional_producers: int
    """None in half of the runs: they have no coordinators."""
    transaction_ms: int
    """Timeout of a transaction."""
    verification_us: int
    """What a leader asks a transaction's coordinator takes longer by up to that."""
    directories: int
    """Log directories of a broker; between two of them replicas are moved (KIP-113, KIP-858)."""
    move_bytes: int
    """A second, so that such a move lasts, and logs are cleaned meanwhile; 0: no bound."""
    changes_voters: bool
    """The quorum's voters are not in the settings, and come and go (KIP-853)."""
    remake_ms: int
    """Mean time that one topic stays, and stays away, before it is deleted or made anew under its name; 0: there is none."""

    members: int
    """Of a group, which join, leave, vanish and commit; none but in every third run."""
    change_ms: int
    """Mean pause between changes of settings, features and numbers of partitions; 0: there are none."""

    segment_bytes: int
    """Of topics that are cleaned or let old records go, the coordinators' among them; 0: there are none."""
    retention_ms: int
    retention_bytes: int
    """Of the topic that lets old records go."""
    unclean: bool
    """One topic elects leaders that may lack records."""

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
"""(controllers, brokers)"""


def rack_of(node_id: int) -> str:
    return f"rack-{node_id % 3}"


def draw_cluster_options(seed: int) -> ClusterOptions:
    chance = Chance(seed, "cluster options")

    def sometimes(probability: float, value: float) -> float:
        return value * chance.uniform() if chance.happens(probability) else 0.0

    # Streams of their own: what is drawn for the rest does not depend on them.
    transactions = Chance(seed, "transaction options")
    life = Chance(seed, "life options")
    groups = Chance(seed, "group options")
    logs = Chance(seed, "kept logs")
    moves = Chance(seed, "slow moves")
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
    )
