"""A broker's coordinators of groups and transactions, and its share groups, connected.

They are made when a client first asks for one of them, or when one of their topics exists: a broker that neither groups
nor transactions use does not import their modules, which are more than a third of all (late.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.group.group_coordinator import GroupCoordinator
from kafkacompat.group.settings import coordinator_settings
from kafkacompat.server.broker_shares import BrokerShares
from kafkacompat.server.broker_transactions import TransactionsSide
from kafkacompat.txn.transaction_coordinator import TransactionCoordinatorSettings

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, ProducerIds
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.server.doors import NodeDoors
    from kafkacompat.share.persister import Topics
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest


class BrokerCoordinators:
    """Call `start` and `stop` at most once each. Without `start`, all of them answer that they are not available."""

    def __init__(
        self,
        doors: NodeDoors,
        settings: NodeSettings,
        partitions: ReplicaManager,
        producer_ids: ProducerIds,
        topics: Topics,
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
    ) -> None:
        config = doors.config
        services = CoordinatorServices(
            config.node_id,
            partitions,
            doors.clock,
            doors.timers,
            doors.tasks,
            doors.workers.loading,
            doors.keep,
        )
        self.groups = GroupCoordinator(
            services,
            doors.random,
            coordinator_settings(settings.effective),
            lambda: settings.get_int("group.consumer.assignment.interval.ms"),
            lambda: settings.get_int("group.share.assignment.interval.ms"),
        )
        self.transactions = TransactionsSide(
            services,
            doors.workers.batches,
            config.inter_broker_listener_name,
            doors.network.channels,
            self.groups,
            producer_ids,
            lambda: partitions.image,
            TransactionCoordinatorSettings.from_config(settings.effective),
            lambda: settings.get_boolean("transaction.partition.verification.enable"),
        )
        self.shares = BrokerShares(services, doors, settings, partitions, self.groups, topics, create_topics)

    def serve(self, node: Node) -> None:
        """Give handlers the services."""
        node.groups = self.groups
        node.transactions = self.transactions.services
        node.share_coordinator = self.shares.state.coordinator
        node.share_persister = self.shares.state.persister
        node.shares = self.shares.partitions

    def start(self) -> None:
        self.groups.start()
        self.transactions.start()
        self.shares.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partitions have applied the image."""
        self.groups.on_image(old, new)
        self.transactions.on_image(old, new)
        self.shares.on_image(old, new)

    def stop(self) -> None:
        self.shares.stop()
        self.transactions.stop()
        self.groups.stop()
