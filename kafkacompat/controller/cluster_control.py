"""Queries of registered brokers and their directories for commands (ClusterControlManager). Pure."""

from __future__ import annotations

from kafkacompat.controller.image import BrokerRegistration, MetadataImage
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from kafkacompat.wire.errors import ErrorCode


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker is registered, unfenced and not in controlled shutdown."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def default_dir(image: MetadataImage, broker_id: int) -> Uuid:
    """The directory of a broker that has exactly one. UNASSIGNED if it has several or is unknown."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return DIRECTORY_UNASSIGNED
    if not broker.directories:
        return DIRECTORY_MIGRATING
    if len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED


def has_online_dir(broker: BrokerRegistration, directory: Uuid) -> bool:
    if directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED):
        return True
    return directory != DIRECTORY_LOST and directory in broker.directories


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registered broker. Raises BrokerRefused (STALE_BROKER_EPOCH) if it is not registered in that epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise BrokerRefused(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is not registered in epoch {broker_epoch}",
        )
    return broker
