"""The quorum, the controller and the metadata: raft-metrics, KafkaController and others of Kafka's MBeans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_LEADER
from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    At,
    Families,
    Metrics,
    counter,
    gauge,
    gauges,
    histogram,
    mean_and_max,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.controller.controller_metrics import BatchMeter, ControllerMeters
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.meters import Histogram
    from kafkacompat.raft.quorum_driver import QuorumDriver

METADATA_VERSION = "metadata.version"
IGNORED_TEXT = "1 if controller.quorum.voters is set, and the voters are those of the metadata log (KIP-853)."
REGISTRATION_FENCED, REGISTRATION_CONTROLLED_SHUTDOWN, REGISTRATION_ACTIVE = 10, 20, 30
"""Values of Kafka's BrokerRegistrationState (KIP-1131)."""
RAFT = "kafka_server_raft_metrics_"
SNAPSHOT = "kafka_server_snapshotemitter_latestsnapshotgenerated"
CONTROLLER = "kafka_controller_kafkacontroller_"
STATS = "kafka_controller_controllerstats_"
QUEUE = "kafka_controller_controllereventmanager_eventqueue"
LOADER = "kafka_server_metadataloader_"
FEATURE = "kafka_server_node_metrics_feature_name_{feature}_"
BATCH = "kafka_server_brokermetadatalistener_metadatabatch"
APPLIED = "kafka_server_broker_metadata_metrics_"

QUORUM: Metrics[At[QuorumDriver]] = Metrics(
    "The metadata quorum",
    gauges(
        f"{RAFT}current_state",
        "1 for the state of this member of the metadata quorum.",
        ("state",),
        lambda at: [({"state": at.part.state_name}, 1)],
    ),
    gauge(
        f"{RAFT}current_leader", "Node id of the quorum's leader; -1: unknown.", lambda at: at.part.leader_id
    ),
    gauge(
        f"{RAFT}current_vote", "Node id that this member voted for; -1: none.", lambda at: at.part.voted_id
    ),
    gauge(f"{RAFT}current_epoch", "The quorum's epoch.", lambda at: at.part.epoch),
    gauge(
        f"{RAFT}high_watermark",
        "The quorum's high watermark; -1: unknown.",
        lambda at: at.part.high_watermark,
    ),
    gauge(f"{RAFT}log_end_offset", "End of the metadata log.", lambda at: at.part.next_offset),
    gauge(f"{RAFT}log_end_epoch", "Epoch of the metadata log's last batch.", lambda at: at.part.last_epoch),
    gauge(f"{RAFT}number_of_voters", "Voters of the quorum.", lambda at: len(at.part.voters)),
    gauge(
        f"{RAFT}number_of_observers",
        "Observers that the leader knows. Of the leader only.",
        lambda at: at.part.observer_count,
    ),
    gauge(
        f"{RAFT}uncommitted_voter_change",
        "1 while a voter is being added or removed. Of the leader only.",
        lambda at: at.part.is_changing_voters,
    ),
    gauge(
        f"{RAFT}append_records_rate",
        "Records that this member appends as the leader, per second.",
        lambda at: at.part.appended.read(at.now_ms)[1],
    ),
    gauge(
        f"{RAFT}fetch_records_rate",
        "Records that this member fetches from the leader, per second.",
        lambda at: at.part.fetched.read(at.now_ms)[1],
    ),
    mean_and_max(
        f"{RAFT}commit_latency_",
        "time until what the leader appends is committed, in the last minute, ms; NaN: none",
        lambda at: at.part.commit_times.mean_and_max(at.now_ms),
    ),
    mean_and_max(
        f"{RAFT}election_latency_",
        "time from this node's candidacy until there is a leader, in the last minute, ms; NaN: none",
        lambda at: at.part.election_times.mean_and_max(at.now_ms),
    ),
    gauge(
        f"{SNAPSHOT}bytes",
        "Size of the last metadata snapshot that this node has written since its start; 0: none.",
        lambda at: at.part.snapshot_written_last()[0],
    ),
    gauge(
        f"{SNAPSHOT}agems",
        "Time since that snapshot, or since the start, ms.",
        lambda at: at.part.snapshot_written_last()[1],
    ),
)


@dataclass(slots=True)
class ControllerReading:
    """A node with the controller role."""

    image: MetadataImage
    meters: ControllerMeters
    is_active: bool
    end_offset: int
    """Of what this node has replayed, committed or not."""
    last_timestamp_ms: int
    """Of the last committed record, by the wall clock, as `now_ms`."""
    now_ms: int
    ignores_static_voters: bool
    faults: int
    """Bugs that it has survived."""
    queue_times_ms: Histogram
    processing_times_ms: Histogram
    timed_out: int
    """Commands that were refused because too many others waited."""
    timed_out_heartbeats: int
    since_heartbeat_ms: Mapping[int, int] | None
    """By broker, the time since its last heartbeat. None unless the controller is active."""
    partitions: int = 0
    """This and the next are counted by `controller_families`."""
    offline: int = 0
    imbalanced: int = 0


CONTROLLERS: Metrics[ControllerReading] = Metrics(
    "The controller",
    gauge(f"{CONTROLLER}ignoredstaticvoters", IGNORED_TEXT, lambda each: each.ignores_static_voters),
    gauge(f"{CONTROLLER}activecontrollercount", "1 on the active controller.", lambda each: each.is_active),
    gauge(
        f"{CONTROLLER}metadataerrorcount",
        "Failures of the controller, or of its snapshots, that are bugs and that it survives.",
        lambda each: each.faults,
    ),
    gauge(
        f"{CONTROLLER}lastcommittedrecordoffset",
        "Last committed metadata offset.",
        lambda each: each.image.offset,
    ),
    gauge(
        f"{CONTROLLER}lastappliedrecordoffset",
        "Last replayed metadata offset.",
        lambda each: each.end_offset - 1,
    ),
    gauge(
        f"{CONTROLLER}lastappliedrecordtimestamp",
        "Time of the last committed metadata record, ms.",
        lambda each: each.last_timestamp_ms,
    ),
    gauge(
        f"{CONTROLLER}lastappliedrecordlagms",
        "Time since the last committed metadata record was written.",
        lambda each: max(each.now_ms - each.last_timestamp_ms, 0),
    ),
    gauge(
        f"{CONTROLLER}newactivecontrollerscount",
        "Leaders of the quorum that this node has seen come.",
        lambda each: each.meters.new_active_controllers,
    ),
    counter(
        f"{STATS}uncleanleaderelections",
        "Leaders that were elected without being in sync: records may be lost.",
        lambda each: each.meters.unclean_elections,
    ),
    counter(
        f"{STATS}electionfromeligibleleaderreplicas",
        "Leaders that were elected from the eligible replicas that are not in sync (KIP-966).",
        lambda each: each.meters.eligible_elections,
    ),
    gauge(
        f"{CONTROLLER}fencedbrokercount",
        "Registered brokers that are fenced.",
        lambda each: sum(broker.fenced for broker in each.image.brokers.values()),
    ),
    gauge(
        f"{CONTROLLER}activebrokercount",
        "Registered brokers that are not fenced.",
        lambda each: sum(not broker.fenced for broker in each.image.brokers.values()),
    ),
    gauge(
        f"{CONTROLLER}controlledshutdownbrokercount",
        "Registered brokers in controlled shutdown.",
        lambda each: sum(broker.in_controlled_shutdown for broker in each.image.brokers.values()),
    ),
    gauges(
        f"{CONTROLLER}brokerregistrationstate",
        "State of each registered broker: 10 fenced, 20 in controlled shutdown, 30 active.",
        ("broker",),
        lambda each: [
            ({"broker": str(broker.id)}, _registration_state(broker))
            for broker in each.image.brokers.values()
        ],
    ),
    gauges(
        f"{CONTROLLER}timesincelastheartbeatreceivedms",
        "Time since the last heartbeat of a broker, at most broker.session.timeout.ms. Of the active controller only.",
        ("broker",),
        lambda each: [
            ({"broker": str(broker)}, since_ms)
            for broker, since_ms in (each.since_heartbeat_ms or {}).items()
        ],
    ),
    gauge(f"{CONTROLLER}globaltopiccount", "Topics of the cluster.", lambda each: len(each.image.topics)),
    gauge(f"{CONTROLLER}globalpartitioncount", "Partitions of the cluster.", lambda each: each.partitions),
    gauge(f"{CONTROLLER}offlinepartitionscount", "Partitions without a leader.", lambda each: each.offline),
    gauge(
        f"{CONTROLLER}preferredreplicaimbalancecount",
        "Partitions whose leader is not their first replica.",
        lambda each: each.imbalanced,
    ),
    histogram(f"{QUEUE}timems", "ms that a command waited for others", lambda each: each.queue_times_ms),
    histogram(
        f"{QUEUE}processingtimems", "ms that a command was carried out", lambda each: each.processing_times_ms
    ),
    gauge(
        f"{CONTROLLER}eventqueueoperationsstartedcount",
        "Commands that were begun.",
        lambda each: each.queue_times_ms.count,
    ),
    gauge(
        f"{CONTROLLER}eventqueueoperationstimedoutcount",
        "Commands that were refused, because too many others waited.",
        lambda each: each.timed_out,
    ),
    gauge(
        f"{CONTROLLER}timedoutbrokerheartbeatcount",
        "Heartbeats among these commands.",
        lambda each: each.timed_out_heartbeats,
    ),
)


def controller_families(reading: ControllerReading) -> Families:
    """Counts the partitions in steps."""
    looked_at = 0
    for topic in reading.image.topics.values():
        reading.partitions += len(topic.partitions)
        for each in topic.partitions.values():
            reading.offline += each.leader == NO_LEADER
            reading.imbalanced += each.leader != each.replicas[0]
        looked_at += len(topic.partitions)
        if looked_at >= COUNTED_A_STEP:
            looked_at = 0
            yield None
    yield from CONTROLLERS.of(reading)


def _registration_state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return REGISTRATION_FENCED
    return REGISTRATION_CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else REGISTRATION_ACTIVE


class LoaderReading(NamedTuple):
    """The metadata of a node."""

    image: MetadataImage
    leader_id: int
    snapshots_loaded: int


METADATA: Metrics[LoaderReading] = Metrics(
    "The metadata of a node",
    gauge(
        f"{LOADER}handleloadsnapshotcount",
        "Metadata snapshots that this node has loaded since its start.",
        lambda each: each.snapshots_loaded,
    ),
    gauge(
        f"{LOADER}currentmetadataversion",
        "The level of metadata.version.",
        lambda each: each.image.features.get(METADATA_VERSION, 0),
    ),
    gauge(
        f"{LOADER}currentcontrollerid",
        "Node id of the active controller; -1: unknown.",
        lambda each: each.leader_id,
    ),
    gauges(
        f"{LOADER}finalizedlevel",
        "The levels of features that the cluster uses.",
        ("featureName",),
        lambda each: [
            ({"featureName": _joined(feature)}, level) for feature, level in each.image.features.items()
        ],
    ),
)


def _joined(feature: str) -> str:
    """As Kafka's label has it: metadataVersion."""
    first, *others = feature.split(".")
    return first + "".join(each.capitalize() for each in others)


FEATURES: Metrics[tuple[int, int]] = Metrics(
    "Features of a node, by the feature's name",
    gauge(f"{FEATURE}minimum_supported_level", "Lowest level of the feature of this node.", lambda it: it[0]),
    gauge(
        f"{FEATURE}maximum_supported_level", "Highest level of the feature of this node.", lambda it: it[1]
    ),
)
"""Of the lowest and the highest level."""


def loader_families(reading: LoaderReading, supported: Mapping[str, tuple[int, int]]) -> Families:
    """Of every node. `supported`: by feature, its lowest and highest level here."""
    yield from METADATA.of(reading)
    for feature, levels in supported.items():
        yield from FEATURES.of(levels, feature=feature.replace(".", "_"))


class AppliedReading(NamedTuple):
    """The metadata of a node with the broker role."""

    image: MetadataImage
    last_timestamp_ms: int
    """Of the last metadata record that was applied, by the wall clock, as `now_ms`."""
    now_ms: int
    ignores_static_voters: bool
    snapshot_faults: int
    """Snapshots that a bug has prevented."""
    batches: BatchMeter


BROKER_METADATA: Metrics[AppliedReading] = Metrics(
    "The metadata of a broker",
    histogram(f"{BATCH}sizes", "records of a batch of metadata", lambda each: each.batches.sizes),
    histogram(
        f"{BATCH}processingtimeus",
        "microseconds to replay a batch of metadata",
        lambda each: each.batches.times_us,
    ),
    gauge(
        f"{APPLIED}metadata_apply_error_count",
        "Snapshots of the metadata that a bug has prevented.",
        lambda each: each.snapshot_faults,
    ),
    gauge(f"{APPLIED}ignored_static_voters", IGNORED_TEXT, lambda each: each.ignores_static_voters),
    gauge(
        f"{APPLIED}last_applied_record_offset",
        "Last applied metadata offset.",
        lambda each: each.image.offset,
    ),
    gauge(
        f"{APPLIED}last_applied_record_timestamp",
        "Time of the last applied record, ms.",
        lambda each: each.last_timestamp_ms,
    ),
    gauge(
        f"{APPLIED}last_applied_record_lag_ms",
        "Time since the last applied metadata record was written. It stays small while the broker follows, because the active "
        "controller writes a record every metadata.max.idle.interval.ms.",
        lambda each: max(each.now_ms - each.last_timestamp_ms, 0),
    ),
)
