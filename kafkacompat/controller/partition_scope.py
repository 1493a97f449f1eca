"""A partition of the image, made ready for a change: who may lead it now, which levels and settings hold.

Pure. Knows the image and settings, not what is to change. (brokers.py has its own view, of a broker that is about to change.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.controller.brokers import default_directory, is_active, is_directory_online
from kafkacompat.controller.features import elr_enabled, metadata_version, partition_version
from kafkacompat.controller.image import MetadataImage, PartitionImage, TopicImage
from kafkacompat.controller.partition_change import PartitionChange
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.replay import ImageBuilder
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.stepping.stepped import RECORDS_A_STEP, Stepped, Steps


def leader_acceptor(image: MetadataImage, partition: PartitionImage) -> Callable[[int], bool]:
    """True for a broker that is unfenced, not shutting down, and has its directory of the partition online."""

    def is_acceptable(replica: int) -> bool:
        if not is_active(image, replica):
            return False
        if replica not in partition.replicas:
            return True
        directory = partition.directories[partition.replicas.index(replica)]
        return is_directory_online(image.brokers[replica], directory)

    return is_acceptable


def change_of(
    image: MetadataImage, settings: ControllerSettings, topic: TopicImage, index: int, **wanted: Any
) -> MetadataRecord | None:
    """The record of a change; `wanted` are fields of PartitionChange. None when nothing is to be written."""
    partition = topic.partitions[index]
    level = metadata_version(image.features)
    change = PartitionChange(
        partition=partition,
        topic_id=topic.id,
        index=index,
        is_acceptable=leader_acceptor(image, partition),
        metadata_version=level,
        min_insync_replicas=settings.min_insync_replicas(image, topic.name),
        elr_enabled=elr_enabled(image.features),
        default_directory=lambda broker_id: default_directory(image, broker_id),
        **{"target_isr": partition.isr, **wanted},
    )
    record = change.record()
    return None if record is None else MetadataRecord(record, partition_version(level))


@Stepped
def replayed(image: MetadataImage, records: Sequence[MetadataRecord]) -> Steps[MetadataImage]:
    """The image as it will be with these records, for a command whose second step must see its first."""
    if not records:
        return image
    builder = ImageBuilder(image)
    for number, record in enumerate(records, 1):
        assert record.message.API_KEY is not None
        builder.apply(record.message.API_KEY, record.message)
        if number % RECORDS_A_STEP == 0:
            yield
    return builder.build(image.offset, image.epoch)
