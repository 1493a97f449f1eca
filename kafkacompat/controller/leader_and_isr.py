"""New leaders and ISRs when one broker's state changes (generateLeaderAndIsrUpdates), and the builder of any
partition's change.

The image does not contain the broker's change yet, so the caller passes it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkacompat.controller.cluster_control import default_dir, has_online_dir
from kafkacompat.controller.features import elr_enabled, metadata_version
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.controller.partition_change_builder import Election, PartitionChangeBuilder
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import RECORD_COST, SCANNED_A_STEP
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.ids import NO_LEADER
from kafkacompat.tasks import TURN_COST, Work


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """The change of one broker, NO_LEADER for none. Only one field is set."""

    to_remove: int = NO_LEADER
    """The broker leaves leaderships and ISRs."""
    to_add: int = NO_LEADER
    """The broker may lead although it is fenced in the image."""
    unclean_shutdown: int = NO_LEADER
    """Like `to_remove`, and the broker may have lost its page cache."""


NO_CHANGE = BrokerChange()


def partition_change(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: TopicImage,
    index: int,
    brokers: BrokerChange = NO_CHANGE,
) -> PartitionChangeBuilder:
    """A builder that keeps the partition as it is, without the removed broker in its ISR. The caller sets further
    changes on it."""
    partition = topic.partitions[index]
    gone = {brokers.to_remove, brokers.unclean_shutdown} - {NO_LEADER}
    isr = partition.isr
    return PartitionChangeBuilder(
        partition=partition,
        topic_id=topic.id,
        index=index,
        is_acceptable_leader=_leader_acceptor(image, partition, brokers),
        metadata_version=metadata_version(image.features),
        min_isr=settings.min_insync_replicas(image, topic.name),
        elr_enabled=elr_enabled(image.features),
        target_isr=tuple(replica for replica in isr if replica not in gone) if gone else isr,
        unclean_shutdown_replicas=frozenset({brokers.unclean_shutdown} - {NO_LEADER}),
        default_dir=lambda broker_id: default_dir(image, broker_id),
    )


def _leader_acceptor(
    image: MetadataImage, partition: PartitionRegistration, brokers: BrokerChange
) -> Callable[[int], bool]:
    """A function that is True for a broker that is unfenced, not shutting down, and has the partition's directory
    online."""

    def is_acceptable(replica: int) -> bool:
        broker = image.brokers.get(replica)
        if broker is None or replica in (brokers.to_remove, brokers.unclean_shutdown):
            return False
        if broker.in_controlled_shutdown or (broker.fenced and replica != brokers.to_add):
            return False
        if replica not in partition.replicas:
            return True
        return has_online_dir(broker, partition.directories[partition.replicas.index(replica)])

    return is_acceptable


def generate_leader_and_isr_updates(
    image: MetadataImage,
    settings: ControllerSettings,
    brokers: BrokerChange,
    concerned: Callable[[PartitionRegistration], bool],
) -> Work[list[MetadataRecord]]:
    """ISR, eligible leaders and leader of every partition concerned, by topic name and index."""
    records: list[MetadataRecord] = []
    cost = 0
    for name in sorted(image.topics):
        topic = image.topics[name]
        election: Election | None = None
        for index in sorted(topic.partitions):
            cost += 1
            if cost >= SCANNED_A_STEP:
                cost = 0
                yield TURN_COST
            if not concerned(topic.partitions[index]):
                continue
            cost += RECORD_COST
            if election is None:
                election = Election.UNCLEAN if settings.unclean_election(image, name) else Election.ONLINE
            builder = partition_change(image, settings, topic, index, brokers)
            builder.election = election
            record = builder.build()
            if record is not None:
                records.append(record)
    return records
