"""The eligible leader replicas removed by a change of settings or features (KIP-966).

If a partition has an ISR, it may commit by other rules from now on, and replicas outside may lack new records. So none
of them stays eligible. If the ISR is empty nothing is committed, and the eligible replicas still have everything.
Apache Kafka 4.3.0 removes them in that case too, after which no replica may lead the partition. The change itself is
unknown here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.features import metadata_version, partition_version
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

EVERY_TOPIC = ""


def clear_elr_records(image: MetadataImage, topic: str) -> list[MetadataRecord]:
    """Records for one existing topic, or for EVERY_TOPIC."""
    version = partition_version(metadata_version(image.features))
    records = [MetadataRecord(ClearElrRecord(topic_name=topic), 0)]
    for name in sorted(image.topics) if topic == EVERY_TOPIC else (topic,):
        found = image.topics[name]
        for index, partition in sorted(found.partitions.items()):
            eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
            if not partition.isr and (eligible or last_known):
                stays = PartitionChangeRecord(
                    topic_id=found.id,
                    partition_id=index,
                    eligible_leader_replicas=list(eligible),
                    last_known_elr=list(last_known),
                )
                records.append(MetadataRecord(stays, version))
    return records
