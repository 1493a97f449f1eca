"""Builds the share-partitions of a broker, and the writer of their dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.coordinator.node_queues import channels_to
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.settings import GroupSettingsCache
from kafkacompat.share.share_partition_manager import SharePartitionManager

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePersister
    from kafkacompat.deferred import Deferred
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.server.doors import NodeDoors
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest

PURPOSE = "dead-letters"


def share_partitions(
    doors: NodeDoors,
    settings: NodeSettings,
    partitions: ReplicaManager,
    persister: SharePersister,
    create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
) -> SharePartitionManager:
    config = doors.config

    groups = GroupSettingsCache(
        lambda: settings.effective,
        lambda group: partitions.image.config(ConfigResourceType.GROUP, group),
        has_dead_letters=True,
    )
    dead_letters = DeadLetterQueue(
        config.node_id,
        lambda: partitions.image,
        groups.dead_letters_of,
        settings.log_config,
        partitions,
        channels_to(
            doors.network.channels, lambda: partitions.image, config.inter_broker_listener_name, PURPOSE
        ),
        create_topics,
        doors.clock,
        doors.timers,
        doors.workers.reads,
    )
    return SharePartitionManager(
        partitions,
        persister,
        groups,
        doors.clock,
        doors.timers,
        doors.random,
        doors.workers.reads,
        config.get_int("group.share.max.share.sessions"),
        lambda: settings.get_int("fetch.max.bytes"),
        dead_letters,
    )
