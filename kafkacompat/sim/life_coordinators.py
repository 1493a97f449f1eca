"""The group and transaction coordinators of a simulated node's life, joined as `server` joins them.

Decides nothing. Only lives of runs with transactional producers have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kafkacompat.api.context import ProducerIds, RequestContext
from kafkacompat.coordinator.service import GroupCoordinator
from kafkacompat.coordinator.settings import coordinator_settings, transaction_settings
from kafkacompat.coordinator.transactions_side import TransactionsSide
from kafkacompat.node.auto_topics import OnDemandTopics

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.node.forwarding import ForwardingController
    from kafkacompat.partition.manager import PartitionManager
    from kafkacompat.sim.cluster_life import Life

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7
NO_CONNECTION = -1


class LifeCoordinators:
    def __init__(
        self,
        life: Life,
        listener_name: str,
        partitions: PartitionManager,
        producer_ids: ProducerIds,
        controller: ForwardingController,
    ) -> None:
        chance, settings = life.machine.chance, life.settings
        own = RequestContext(
            CREATE_TOPICS, CREATE_TOPICS_VERSION, 0, None, NO_CONNECTION, listener_name, "127.0.0.1"
        )
        self.groups = GroupCoordinator(
            life.id, partitions, life, life, chance, life.workers, coordinator_settings(settings)
        )
        self.side = TransactionsSide(
            life.id,
            listener_name,
            cast(Any, life.channels),
            partitions,
            self.groups,
            producer_ids,
            lambda: partitions.image,
            life,
            life,
            life.workers,
            transaction_settings(settings),
            lambda: settings.bool("transaction.partition.verification.enable"),
        )
        self.auto_create = OnDemandTopics(
            life.config, lambda request: controller.create_topics(request, own), lambda *_: None
        )

    def services(self) -> dict[str, Any]:
        """What the node's handlers call."""
        return {
            "groups": self.groups,
            "transactions": self.side.services,
            "auto_create": self.auto_create,
        }

    def start(self) -> None:
        self.groups.start()
        self.side.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self.groups.on_image(old, new)
        self.side.on_image(old, new)

    def stop(self) -> None:
        self.side.stop()
        self.groups.stop()
