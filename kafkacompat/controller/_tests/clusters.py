"""Images of several brokers for command tests, and a step that replays the records of a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.controller.partition_change_builder import partition_change
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import ControllerSettings

TOPIC_ID = b"t" * 16
LEVELS = {"metadata.version": 30, "eligible.leader.replicas.version": 1}


def settings(**properties: str) -> ControllerSettings:
    names = {key.replace("_", "."): value for key, value in properties.items()}
    return ControllerSettings(
        ServerConfig.from_properties({**defaults_without_file(), **names}), 1, "cluster"
    )


def directory(broker_id: int) -> bytes:
    return bytes([broker_id]) * 16


def broker(
    broker_id: int, *, fenced: bool = False, features: Mapping[str, tuple[int, int]] = {}, **fields: Any
) -> BrokerRegistration:
    values: dict[str, Any] = {
        "id": broker_id,
        "epoch": 100 + broker_id,
        "incarnation_id": bytes(15) + bytes([broker_id]),
        "endpoints": {},
        "features": features,
        "rack": None,
        "fenced": fenced,
        "in_controlled_shutdown": False,
        "directories": (directory(broker_id),),
    }
    return BrokerRegistration(**{**values, **fields})


def partition(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None, **fields: Any
) -> PartitionRegistration:
    in_sync = replicas if isr is None else isr
    values: dict[str, Any] = {
        "replicas": replicas,
        "directories": tuple(directory(each) for each in replicas),
        "isr": in_sync,
        "removing_replicas": (),
        "adding_replicas": (),
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "leader": (in_sync[0] if in_sync else -1) if leader is None else leader,
        "leader_recovering": False,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionRegistration(**{**values, **fields})


def cluster(
    *partitions: PartitionRegistration,
    brokers: Iterable[BrokerRegistration | int] = (1, 2, 3, 4),
    features: Mapping[str, int] = LEVELS,
    configs: Mapping[tuple[int, str], Mapping[str, str]] = {},
) -> MetadataImage:
    """A cluster with topic t and these partitions."""
    topic = TopicImage("t", TOPIC_ID, dict(enumerate(partitions)))
    members = [broker(each) if isinstance(each, int) else each for each in brokers]
    return MetadataImage(
        offset=50,
        epoch=2,
        features=features,
        brokers={each.id: each for each in members},
        topics={"t": topic},
        topics_by_id={TOPIC_ID: topic},
        configs=configs,
    )


def isr_change(image: MetadataImage, *isr: int) -> MetadataRecord | None:
    """The controller's record when the leader of the first partition reports this ISR."""
    builder = partition_change(image, settings(), image.topics["t"], 0)
    builder.target_isr = isr
    return builder.build()


def after(image: MetadataImage, result: ControllerResult[Any, Any]) -> MetadataImage:
    """The image after the result's records."""
    delta = MetadataDelta(image)
    for record in result.records:
        delta.replay(record.message.API_KEY, record.message)
    return delta.apply(image.offset + len(result.records), image.epoch)
