"""A broker's parts for share groups, connected: their state, the records in flight, and their dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.server.broker_share_state import SharesSide
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.settings import GroupSettingsCache
from kafkacompat.share.share_coordinator import share_settings
from kafkacompat.share.share_partition_manager import SharePartitionManager

if TYPE_CHECKING:
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.deferred import Deferred
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.server.doors import NodeDoors
    from kafkacompat.share.persister import Topics
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest

DEAD_LETTERS_PURPOSE = "dead-letters"


class BrokerShares:
    def __init__(
        self,
        services: CoordinatorServices,
        doors: NodeDoors,
        settings: NodeSettings,
        partitions: ReplicaManager,
        coordinator: GroupCoordinator,
        topics: Topics,
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
    ) -> None:
        config, channels = doors.config, doors.network.channels
        clock, timers, random = doors.clock, doors.timers, doors.random
        listener_name = config.inter_broker_listener_name

        def image() -> MetadataImage:
            return partitions.image

        self.state = SharesSide(
            services,
            listener_name,
            channels,
            coordinator,
            topics,
            image,
            random,
            share_settings(settings.effective),
        )
        groups = GroupSettingsCache(
            lambda: settings.effective,
            lambda group: partitions.image.config(ConfigResourceType.GROUP, group),
        )
        self.dead_letters = DeadLetterQueue(
            config.node_id,
            image,
            groups.dead_letters_of,
            settings.log_config,
            partitions,
            channels_to(channels, image, listener_name, DEAD_LETTERS_PURPOSE),
            create_topics,
            clock,
            doors.tasks,
            doors.workers.reads,
        )
        self.partitions = SharePartitionManager(
            partitions,
            self.state.persister,
            groups,
            clock,
            timers,
            doors.tasks,
            random,
            doors.workers.reads,
            config.get_int("group.share.max.share.sessions"),
            lambda: settings.get_int("fetch.max.bytes"),
            self.dead_letters,
        )

    def start(self) -> None:
        self.state.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partitions have applied the image."""
        self.state.on_image(old, new)
        self.partitions.on_image(old, new)

    def stop(self) -> None:
        self.dead_letters.close()
        self.state.stop()
