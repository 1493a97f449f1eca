"""A broker's parts for the state of share groups, connected: the share coordinator, the persister, and what the group
coordinator needs of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.group.end_offsets import EndOffsetReader
from kafkacompat.share.persister import ShareStatePersister, Topics
from kafkacompat.share.share_coordinator import ShareCoordinator, ShareCoordinatorSettings

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.ports import Random

STATE_PURPOSE = "share-group-state"
END_OFFSETS_PURPOSE = "end-offsets"


class SharesSide:
    """`start`, `on_image` and `stop` are as in the group coordinator."""

    def __init__(
        self,
        services: CoordinatorServices,
        listener_name: str,
        channels: Any,
        groups: GroupCoordinator,
        topics: Topics,
        image: Callable[[], MetadataImage],
        random: Random,
        settings: ShareCoordinatorSettings,
    ) -> None:
        """`listener_name` is the listener of the brokers. `image` returns the newest image that the partitions have
        applied."""
        self.coordinator = ShareCoordinator(services, settings)
        self.persister = ShareStatePersister(
            services.node_id,
            image,
            self.coordinator,
            channels_to(channels, image, listener_name, STATE_PURPOSE),
            topics,
            services.timers,
            services.tasks,
            random,
        )
        self._ends = EndOffsetReader(
            services.node_id,
            services.partitions,
            image,
            channels_to(channels, image, listener_name, END_OFFSETS_PURPOSE),
            services.tasks,
        )
        groups.share.persister = self.persister
        groups.share_offsets.ends = self._ends

    def start(self) -> None:
        self.coordinator.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partitions have applied the image."""
        self.coordinator.on_image(old, new)
        self.persister.on_image(old, new)

    def stop(self) -> None:
        self._ends.close()
        self.persister.close()
        self.coordinator.stop()
