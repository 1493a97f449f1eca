"""The records of an image: the contents of a metadata snapshot, in the order of Kafka's image writer.

Pure. metadata.version comes first, so that a reader knows the versions of the following records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kafkacompat.controller.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    metadata_version,
    partition_version,
    register_broker_version,
)
from kafkacompat.controller.image import (
    CLIENT_QUOTAS,
    CONTROLLERS,
    DELEGATION_TOKENS,
    SCRAM_CREDENTIALS,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.ids import Uuid
from kafkacompat.security.acl import Acl
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord
from kafkacompat.wire.messages.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from kafkacompat.wire.messages.topic_record import TopicRecord


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that give this image when replayed onto an empty one (except offset and epoch; kraft.version is in a
    control record)."""
    level = metadata_version(image.features)
    # An image without it belongs to a log whose first records the first active controller has not written yet.
    if METADATA_VERSION in image.features:
        yield MetadataRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), 0)
    for name in sorted(image.features):
        if name not in (METADATA_VERSION, KRAFT_VERSION):
            yield MetadataRecord(FeatureLevelRecord(name=name, feature_level=image.features[name]), 0)
    for broker_id in sorted(image.brokers):
        yield MetadataRecord(broker_record(image.brokers[broker_id], level), register_broker_version(level))
    yield from _opaque(image, CONTROLLERS)
    version = partition_version(level)
    for name in sorted(image.topics):
        topic = image.topics[name]
        yield MetadataRecord(TopicRecord(name=name, topic_id=topic.id), 0)
        for index in sorted(topic.partitions):
            yield MetadataRecord(partition_record(topic.id, index, topic.partitions[index], version), version)
    for resource_type, resource_name in sorted(image.configs):
        values = image.configs[(resource_type, resource_name)]
        for name in sorted(values):
            record = ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=values[name]
            )
            yield MetadataRecord(record, 0)
    yield from _opaque(image, CLIENT_QUOTAS)
    if image.next_producer_id > 0:
        record_of_ids = ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
        yield MetadataRecord(record_of_ids, 0)
    for key in sorted(image.acls):
        yield MetadataRecord(acl_record(key, image.acls[key]), 0)
    for kind in (SCRAM_CREDENTIALS, DELEGATION_TOKENS):
        yield from _opaque(image, kind)


def _opaque(image: MetadataImage, kind: str) -> Iterator[MetadataRecord]:
    kept = image.opaque.get(kind, {})
    for key in sorted(kept, key=repr):
        yield MetadataRecord(cast("Message", kept[key]), 0)


def acl_record(key: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=key, **acl._asdict())


def broker_record(broker: BrokerRegistration, level: int) -> RegisterBrokerRecord:
    """The broker's registration record. `level` is the metadata.version."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for name, each in broker.endpoints.items()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if level >= 17 else [],
        cordoned_log_dirs=(
            None if broker.cordoned_directories is None or level < 30 else list(broker.cordoned_directories)
        ),
    )


def partition_record(
    topic_id: Uuid, index: int, partition: PartitionRegistration, version: int
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.leader_recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if version >= 1 else [],
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None if version >= 2 else None,
        last_known_elr=list(partition.last_known_elr) or None if version >= 2 else None,
    )
