"""A broker's coordinators of groups and transactions, and its share groups, connected.

They are made when a client first asks for one of them, or when one of their topics exists: a broker that neither groups
nor transactions use does not import their modules, which are more than a third of all (late.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.group.group_coordinator import CoordinatorSettings, GroupCoordinator, GroupServices
from kafkacompat.group.network_partition_metadata_client import NetworkPartitionMetadataClient
from kafkacompat.net.failures import UnsupportedByPeer
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.persister import ShareStatePersister, Topics
from kafkacompat.share.settings import GroupSettingsCache
from kafkacompat.share.share_coordinator import ShareCoordinator, ShareCoordinatorSettings, share_settings
from kafkacompat.share.share_partition_cache import ShareServices
from kafkacompat.share.share_partition_manager import SharePartitionManager
from kafkacompat.txn.add_partitions_to_txn_manager import AddPartitionsToTxnManager, VerifierMeter
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.service import Transactions
from kafkacompat.txn.transaction_coordinator import TransactionCoordinator, TransactionCoordinatorSettings

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.deferred import Deferred
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Random, Workers
    from kafkacompat.server.doors import NodeDoors
    from kafkacompat.txn.service import ProducerIds
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest

MARKERS_PURPOSE = "transaction-markers"
VERIFICATION_PURPOSE = "add-partitions-to-transactions"


class TransactionsSide:
    """`services` is for the handlers. `start`, `on_image` and `stop` are as in the group coordinator."""

    def __init__(
        self,
        services: CoordinatorServices,
        matching: Workers,
        listener_name: str,
        channels: Any,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        image: Callable[[], MetadataImage],
        settings: TransactionCoordinatorSettings,
        verifies: Callable[[], bool],
    ) -> None:
        """`listener_name` is the listener of the brokers. `image` returns the newest image that the partitions have
        applied. `verifies` returns the present value of transaction.partition.verification.enable."""
        markers = LocalMarkerWriter(
            services.partitions, groups, services.clock, services.tasks, settings.request_timeout_ms
        )
        self.coordinator = TransactionCoordinator(
            services,
            matching,
            producer_ids,
            image,
            markers,
            channels_to(channels, image, listener_name, MARKERS_PURPOSE),
            settings,
        )
        self.verifier = AddPartitionsToTxnManager(
            services.node_id,
            image,
            self.coordinator,
            channels_to(channels, image, listener_name, VERIFICATION_PURPOSE),
            services.tasks,
            settings.request_timeout_ms,
            UnsupportedByPeer,
            verifies,
        )
        self.services = Transactions(self.coordinator, markers, self.verifier, services.timers)

    @property
    def verifications(self) -> VerifierMeter:
        return self.verifier.meter

    def start(self) -> None:
        self.coordinator.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after partitions and groups have applied the image."""
        self.coordinator.on_image(old, new)

    def stop(self) -> None:
        self.coordinator.stop()
        self.verifier.close()


STATE_PURPOSE = "share-group-state"
END_OFFSETS_PURPOSE = "end-offsets"


class SharesSide:
    """`start`, `on_image` and `stop` are as in the group coordinator."""

    def __init__(
        self,
        services: CoordinatorServices,
        listener_name: str,
        channels: Any,
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
            services.tasks,
            random,
        )
        self.ends = NetworkPartitionMetadataClient(
            services.node_id,
            services.partitions,
            image,
            channels_to(channels, image, listener_name, END_OFFSETS_PURPOSE),
            services.tasks,
        )

    def start(self) -> None:
        self.coordinator.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partitions have applied the image."""
        self.coordinator.on_image(old, new)
        self.persister.on_image(old, new)

    def stop(self) -> None:
        self.ends.close()
        self.persister.close()
        self.coordinator.stop()


DEAD_LETTERS_PURPOSE = "dead-letters"


class BrokerShares:
    def __init__(
        self,
        services: CoordinatorServices,
        doors: NodeDoors,
        settings: NodeSettings,
        partitions: ReplicaManager,
        topics: Topics,
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
    ) -> None:
        config, channels = doors.config, doors.network.channels
        clock, random = doors.clock, doors.random
        listener_name = config.inter_broker_listener_name

        def image() -> MetadataImage:
            return partitions.image

        self.state = SharesSide(
            services,
            listener_name,
            channels,
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
            ShareServices(
                partitions,
                self.state.persister,
                groups,
                self.dead_letters,
                clock,
                doors.timers,
                doors.tasks,
                random,
                doors.workers.reads,
                config.get_int("group.share.max.share.sessions"),
                lambda: settings.get_int("fetch.max.bytes"),
            )
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
        self.shares = BrokerShares(services, doors, settings, partitions, topics, create_topics)
        self.groups = GroupCoordinator(
            services,
            GroupServices(
                doors.random,
                lambda: settings.effective,
                self.shares.state.persister,
                self.shares.state.ends,
                lambda: self.transactions.verifier,
            ),
            CoordinatorSettings.from_config(settings.effective),
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
