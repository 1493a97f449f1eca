"""The quorum's and the controller's metrics, under the names of Kafka's MBeans raft-metrics, KafkaController and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import NO_LEADER
from kafkacompat.metrics.families import COUNTED_A_STEP, Families, counter, gauge, gauges
from kafkacompat.metrics.histograms import histogram_families

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


def raft_families(quorum: QuorumDriver, now_ms: int) -> Families:
    """Of every node. `now_ms` is monotonic."""
    name = "kafka_server_raft_metrics_"
    yield gauges(
        f"{name}current_state",
        "1 for the state of this member of the metadata quorum.",
        [({"state": quorum.state_name}, 1)],
    )
    yield gauge(f"{name}current_leader", "Node id of the quorum's leader; -1: unknown.", quorum.leader_id)
    yield gauge(f"{name}current_vote", "Node id that this member voted for; -1: none.", quorum.voted_id)
    yield gauge(f"{name}current_epoch", "The quorum's epoch.", quorum.epoch)
    yield gauge(f"{name}high_watermark", "The quorum's high watermark; -1: unknown.", quorum.high_watermark)
    yield gauge(f"{name}log_end_offset", "End of the metadata log.", quorum.next_offset)
    yield gauge(f"{name}log_end_epoch", "Epoch of the metadata log's last batch.", quorum.last_epoch)
    yield gauge(f"{name}number_of_voters", "Voters of the quorum.", len(quorum.voters))
    observers = quorum.observer_count
    if observers is not None:
        yield gauge(f"{name}number_of_observers", "Observers that the leader knows.", observers)
    changing = quorum.is_changing_voters
    if changing is not None:
        yield gauge(f"{name}uncommitted_voter_change", "1 while a voter is being added or removed.", changing)
    yield gauge(
        f"{name}append_records_rate",
        "Records that this member appends as the leader, per second.",
        quorum.appended.read(now_ms)[1],
    )
    yield gauge(
        f"{name}fetch_records_rate",
        "Records that this member fetches from the leader, per second.",
        quorum.fetched.read(now_ms)[1],
    )
    for kind, times, text in (
        ("commit", quorum.commit_times, "until what the leader appends is committed"),
        ("election", quorum.election_times, "from this node's candidacy until there is a leader"),
    ):
        mean, longest = times.mean_and_max(now_ms)
        yield gauge(
            f"{name}{kind}_latency_avg", f"Mean time {text}, in the last minute, ms; NaN: none.", mean
        )
        yield gauge(
            f"{name}{kind}_latency_max", f"Longest time {text}, in the last minute, ms; NaN: none.", longest
        )
    size_bytes, age_ms = quorum.snapshot_written_last()
    name = "kafka_server_snapshotemitter_latestsnapshotgenerated"
    yield gauge(f"{name}bytes", "Size of the last metadata snapshot of this node; 0: none yet.", size_bytes)
    yield gauge(f"{name}agems", "Time since that snapshot, or since the start, ms.", age_ms)


def controller_families(
    image: MetadataImage,
    meters: ControllerMeters,
    *,
    is_active: bool,
    end_offset: int,
    ignores_static_voters: bool,
    faults: int,
) -> Families:
    """Of a node with the controller role. `end_offset`: of what this node has replayed, committed or not. `faults`: bugs
    that it has survived."""
    name = "kafka_controller_kafkacontroller_"
    yield gauge(f"{name}ignoredstaticvoters", IGNORED_TEXT, ignores_static_voters)
    yield gauge(f"{name}activecontrollercount", "1 on the active controller.", is_active)
    yield gauge(
        f"{name}metadataerrorcount",
        "Failures of the controller, or of its snapshots, that are bugs and that it survives.",
        faults,
    )
    yield gauge(f"{name}lastcommittedrecordoffset", "Last committed metadata offset.", image.offset)
    yield gauge(f"{name}lastappliedrecordoffset", "Last replayed metadata offset.", end_offset - 1)
    yield gauge(
        f"{name}newactivecontrollerscount",
        "Leaders of the quorum that this node has seen come.",
        meters.new_active_controllers,
    )
    stats = "kafka_controller_controllerstats_"
    yield counter(
        f"{stats}uncleanleaderelections",
        "Leaders that were elected without being in sync: records may be lost.",
        meters.unclean_elections,
    )
    yield counter(
        f"{stats}electionfromeligibleleaderreplicas",
        "Leaders that were elected from the eligible replicas that are not in sync (KIP-966).",
        meters.eligible_elections,
    )
    brokers = image.brokers.values()
    fenced = sum(each.fenced for each in brokers)
    leaving = sum(each.in_controlled_shutdown for each in brokers)
    yield gauge(f"{name}fencedbrokercount", "Registered brokers that are fenced.", fenced)
    yield gauge(f"{name}activebrokercount", "Registered brokers that are not fenced.", len(brokers) - fenced)
    yield gauge(f"{name}controlledshutdownbrokercount", "Registered brokers in controlled shutdown.", leaving)
    yield gauges(
        f"{name}brokerregistrationstate",
        "State of each registered broker: 10 fenced, 20 in controlled shutdown, 30 active.",
        [({"broker": str(each.id)}, _registration_state(each)) for each in brokers],
    )
    yield gauge(f"{name}globaltopiccount", "Topics of the cluster.", len(image.topics))
    partitions = offline = imbalanced = looked_at = 0
    for topic in image.topics.values():
        partitions += len(topic.partitions)
        for each in topic.partitions.values():
            offline += each.leader == NO_LEADER
            imbalanced += each.leader != each.replicas[0]
        looked_at += len(topic.partitions)
        if looked_at >= COUNTED_A_STEP:
            looked_at = 0
            yield None
    yield gauge(f"{name}globalpartitioncount", "Partitions of the cluster.", partitions)
    yield gauge(f"{name}offlinepartitionscount", "Partitions without a leader.", offline)
    yield gauge(
        f"{name}preferredreplicaimbalancecount",
        "Partitions whose leader is not their first replica.",
        imbalanced,
    )


def heartbeat_families(since_ms: Mapping[int, int]) -> Families:
    """Of the active controller. `since_ms`: by broker, the time since its last heartbeat."""
    yield gauges(
        "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms",
        "Time since the last heartbeat of a broker, at most broker.session.timeout.ms.",
        [({"broker": str(broker)}, each) for broker, each in since_ms.items()],
    )


def applied_families(last_timestamp_ms: int, now_ms: int) -> Families:
    """Of a node with the controller role. Both are of the wall clock."""
    name = "kafka_controller_kafkacontroller_lastappliedrecord"
    yield gauge(f"{name}timestamp", "Time of the last committed metadata record, ms.", last_timestamp_ms)
    yield gauge(
        f"{name}lagms",
        "Time since the last committed metadata record was written.",
        max(now_ms - last_timestamp_ms, 0),
    )


def loader_families(
    image: MetadataImage, leader_id: int, snapshots_loaded: int, supported: Mapping[str, tuple[int, int]]
) -> Families:
    """Of every node. `supported`: by feature, its lowest and highest level here."""
    name = "kafka_server_metadataloader_"
    yield gauge(
        f"{name}handleloadsnapshotcount",
        "Metadata snapshots that this node has loaded since its start.",
        snapshots_loaded,
    )
    yield gauge(
        f"{name}currentmetadataversion",
        "The level of metadata.version.",
        image.features.get(METADATA_VERSION, 0),
    )
    yield gauge(f"{name}currentcontrollerid", "Node id of the active controller; -1: unknown.", leader_id)
    yield gauges(
        f"{name}finalizedlevel",
        "The levels of features that the cluster uses.",
        [({"featureName": _joined(feature)}, level) for feature, level in image.features.items()],
    )
    for feature, (lowest, highest) in supported.items():
        name = f"kafka_server_node_metrics_feature_name_{feature.replace('.', '_')}_"
        yield gauge(f"{name}minimum_supported_level", f"Lowest level of {feature} of this node.", lowest)
        yield gauge(f"{name}maximum_supported_level", f"Highest level of {feature} of this node.", highest)


def _joined(feature: str) -> str:
    """As Kafka's label has it: metadataVersion."""
    first, *others = feature.split(".")
    return first + "".join(each.capitalize() for each in others)


def queue_families(
    queue_times_ms: Histogram, processing_times_ms: Histogram, *, timed_out: int, heartbeats_timed_out: int
) -> Families:
    """Of the controller's commands. Those that timed out were refused because too many others waited."""
    name = "kafka_controller_controllereventmanager_eventqueue"
    yield from histogram_families(f"{name}timems", "ms that a command waited for others", queue_times_ms)
    yield from histogram_families(
        f"{name}processingtimems", "ms that a command was carried out", processing_times_ms
    )
    name = "kafka_controller_kafkacontroller_"
    yield gauge(f"{name}eventqueueoperationsstartedcount", "Commands that were begun.", queue_times_ms.count)
    yield gauge(
        f"{name}eventqueueoperationstimedoutcount",
        "Commands that were refused, because too many others waited.",
        timed_out,
    )
    yield gauge(
        f"{name}timedoutbrokerheartbeatcount", "Heartbeats among these commands.", heartbeats_timed_out
    )


def metadata_families(
    image: MetadataImage,
    *,
    last_timestamp_ms: int,
    now_ms: int,
    ignores_static_voters: bool,
    snapshot_faults: int,
    batches: BatchMeter,
) -> Families:
    """Of a node with the broker role. `last_timestamp_ms`: of the last metadata record that was applied. `snapshot_faults`:
    snapshots that a bug has prevented."""
    name = "kafka_server_brokermetadatalistener_metadatabatch"
    yield from histogram_families(f"{name}sizes", "records of a batch of metadata", batches.sizes)
    yield from histogram_families(
        f"{name}processingtimeus", "microseconds to replay a batch of metadata", batches.times_us
    )
    name = "kafka_server_broker_metadata_metrics_"
    yield gauge(
        f"{name}metadata_apply_error_count",
        "Snapshots of the metadata that a bug has prevented.",
        snapshot_faults,
    )
    yield gauge(f"{name}ignored_static_voters", IGNORED_TEXT, ignores_static_voters)
    yield gauge(f"{name}last_applied_record_offset", "Last applied metadata offset.", image.offset)
    yield gauge(
        f"{name}last_applied_record_timestamp", "Time of the last applied record, ms.", last_timestamp_ms
    )
    yield gauge(
        f"{name}last_applied_record_lag_ms",
        "Time since the last applied metadata record was written.",
        max(now_ms - last_timestamp_ms, 0),
    )


def _registration_state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return REGISTRATION_FENCED
    return REGISTRATION_CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else REGISTRATION_ACTIVE
