"""What the settings mirror.* of a topic may become, and the leader epochs of a topic that turns back. Pure.

The package mirror says what they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.config.topic import MIRROR_LEADER_EPOCH, MIRROR_STATE, STOPPED
from kafkacompat.controller.controller_result import RECORDS_A_STEP
from kafkacompat.controller.features import metadata_version, partition_version
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.snapshot_records import partition_record
from kafkacompat.ids import INTERNAL_TOPICS
from kafkacompat.tasks import TURN_COST, Work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.controller.image import MetadataImage


def check_mirror(
    image: MetadataImage, topic: str, wanted: Mapping[str, str], current: Mapping[str, str]
) -> None:
    """Of a topic that exists. `wanted` are its settings after a change. Raises ConfigError."""
    former, state = current.get(MIRROR_STATE, STOPPED), wanted.get(MIRROR_STATE, STOPPED)
    if former != STOPPED and MIRROR_STATE not in wanted:
        raise ConfigError(
            MIRROR_STATE, None, f"a topic that is {former} takes over when it is set to {STOPPED}"
        )
    epoch = wanted.get(MIRROR_LEADER_EPOCH, "0")
    if epoch == current.get(MIRROR_LEADER_EPOCH, "0"):
        return
    if former != STOPPED or state == STOPPED or topic in INTERNAL_TOPICS:
        text = "it can be set only when a topic is created, or when one that takes records becomes a mirror"
        raise ConfigError(MIRROR_LEADER_EPOCH, epoch, text)
    known = image.topics.get(topic)
    highest = max((each.leader_epoch for each in known.partitions.values()), default=-1) if known else -1
    if int(epoch) <= highest:
        raise ConfigError(MIRROR_LEADER_EPOCH, epoch, f"it must be above {highest}, the topic's leader epoch")


def turning_back(
    image: MetadataImage, topic: str, written: Mapping[str, str | None]
) -> Work[list[MetadataRecord]]:
    """With a new first leader epoch, which `check_mirror` allows, all partitions begin in it at once. So no leader here writes a
    batch with an epoch that the source may use."""
    records: list[MetadataRecord] = []
    epoch = written.get(MIRROR_LEADER_EPOCH)
    if epoch is None:
        return records
    version = partition_version(metadata_version(image.features))
    known = image.topics[topic]
    for index, partition in known.partitions.items():
        begun = replace(partition, leader_epoch=int(epoch), partition_epoch=partition.partition_epoch + 1)
        records.append(MetadataRecord(partition_record(known.id, index, begun, version), version))
        if len(records) % RECORDS_A_STEP == 0:
            yield TURN_COST
    return records
