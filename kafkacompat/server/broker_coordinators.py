"""A broker's coordinators of groups and transactions, and its share groups, connected.

They are made when a client first asks for one of them, or when one of their topics exists: a broker that neither groups
nor transactions use does not import their modules, which are more than a third of all (late.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.features import SHARE_VERSION
from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator.inter_broker_sender import Requests, channels_to
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.group.group_coordinator import CoordinatorSettings, GroupCoordinator, GroupServices
from kafkacompat.group.network_partition_metadata_client import NetworkPartitionMetadataClient
from kafkacompat.net.failures import UnsupportedByPeer
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.persister import DefaultStatePersister, Topics
from kafkacompat.share.settings import ShareSettingsCache
from kafkacompat.share.share_coordinator import ShareCoordinator, share_settings
from kafkacompat.share.share_partition_cache import ShareServices
from kafkacompat.share.share_partition_manager import SharePartitionManager
from kafkacompat.txn.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.service import Transactions
from kafkacompat.txn.transaction_coordinator import TransactionCoordinator, TransactionCoordinatorSettings
from kafkacompat.wire.config_resources import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.deferred import Deferred
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.server.services import NodeServices
    from kafkacompat.txn.service import ProducerIds
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest

MARKERS_PURPOSE = "transaction-markers"
VERIFICATION_PURPOSE = "add-partitions-to-transactions"
STATE_PURPOSE = "share-group-state"
END_OFFSETS_PURPOSE = "end-offsets"
DEAD_LETTERS_PURPOSE = "dead-letters"


class BrokerCoordinators:
    """Call `start` and `stop` at most once each. Without `start`, all of them answer that they are not available."""

    def __init__(
        self,
        services: NodeServices,
        settings: NodeSettings,
        partitions: ReplicaManager,
        producer_ids: ProducerIds,
        topics: Topics,
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
    ) -> None:
        config = services.config
        coordinator_services = CoordinatorServices(
            config.node_id,
            partitions,
            services.clock,
            services.timers,
            services.tasks,
            services.workers.loading,
            services.keep,
        )

        def image() -> MetadataImage:
            """The newest image that the partitions have applied."""
            return partitions.image

        def channels(purpose: str) -> Callable[[int], Requests | None]:
            return channels_to(services.network.channels, image, config.inter_broker_listener_name, purpose)

        self.share_coordinator = ShareCoordinator(coordinator_services, share_settings(settings.effective))
        self.persister = DefaultStatePersister(
            config.node_id,
            image,
            self.share_coordinator,
            channels(STATE_PURPOSE),
            topics,
            services.tasks,
            services.random,
        )
        self.ends = NetworkPartitionMetadataClient(
            config.node_id, partitions, image, channels(END_OFFSETS_PURPOSE), services.tasks
        )
        group_settings = ShareSettingsCache(
            lambda: settings.effective,
            lambda group: partitions.image.config(ConfigResourceType.GROUP, group),
            lambda: partitions.image.features.get(SHARE_VERSION, 0),
        )
        self.dead_letters = DeadLetterQueue(
            config.node_id,
            image,
            group_settings.dead_letters_of,
            settings.log_config,
            partitions,
            channels(DEAD_LETTERS_PURPOSE),
            create_topics,
            services.clock,
            services.tasks,
            services.workers.reads,
        )
        self.shares = SharePartitionManager(
            ShareServices(
                partitions,
                self.persister,
                group_settings,
                self.dead_letters,
                services.clock,
                services.tasks,
                services.random,
                services.workers.reads,
                config.get_int("group.share.max.share.sessions"),
                lambda: settings.get_int("fetch.max.bytes"),
            )
        )

        self.groups = GroupCoordinator(
            coordinator_services,
            GroupServices(
                services.random,
                lambda: settings.effective,
                self.persister,
                self.ends,
                lambda: self.verifier,
            ),
            CoordinatorSettings.from_config(settings.effective),
        )

        transaction_settings = TransactionCoordinatorSettings.from_config(settings.effective)
        markers = LocalMarkerWriter(
            partitions, self.groups, services.clock, services.tasks, transaction_settings.request_timeout_ms
        )
        self.transactions = TransactionCoordinator(
            coordinator_services,
            services.workers.batches,
            producer_ids,
            image,
            markers,
            channels(MARKERS_PURPOSE),
            transaction_settings,
        )
        self.verifier = AddPartitionsToTxnManager(
            config.node_id,
            image,
            self.transactions,
            channels(VERIFICATION_PURPOSE),
            services.tasks,
            transaction_settings.request_timeout_ms,
            UnsupportedByPeer,
            lambda: settings.get_boolean("transaction.partition.verification.enable"),
        )
        self._transactions_of_handlers = Transactions(
            self.transactions, markers, self.verifier, services.tasks
        )

    def serve(self, node: Node) -> None:
        """Give handlers the services."""
        node.groups = self.groups
        node.transactions = self._transactions_of_handlers
        node.share_coordinator = self.share_coordinator
        node.share_persister = self.persister
        node.shares = self.shares

    def start(self) -> None:
        self.groups.start()
        self.transactions.start()
        self.share_coordinator.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partitions have applied the image."""
        self.groups.on_image(old, new)
        self.transactions.on_image(old, new)
        self.share_coordinator.on_image(old, new)
        self.persister.on_image(old, new)
        self.shares.on_image(old, new)

    def stop(self) -> None:
        self.dead_letters.close()
        self.ends.close()
        self.persister.close()
        self.share_coordinator.stop()
        self.transactions.stop()
        self.verifier.close()
        self.groups.stop()
