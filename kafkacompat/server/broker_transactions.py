"""A broker's parts for transactions, connected: coordinator, marker writer, verifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.transaction_services import Transactions
from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.net.failures import UnsupportedByPeer
from kafkacompat.txn.add_partitions_to_txn_manager import AddPartitionsToTxnManager, VerifierMeter
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.transaction_coordinator import TransactionCoordinator, TransactionCoordinatorSettings

if TYPE_CHECKING:
    from kafkacompat.api.context import ProducerIds
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.ports import Workers

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
        markers = LocalMarkerWriter(services.partitions, groups, services.clock, settings.request_timeout_ms)
        self.coordinator = TransactionCoordinator(
            services,
            matching,
            producer_ids,
            image,
            markers,
            channels_to(channels, image, listener_name, MARKERS_PURPOSE),
            settings,
        )
        self._verifier = AddPartitionsToTxnManager(
            services.node_id,
            image,
            self.coordinator,
            channels_to(channels, image, listener_name, VERIFICATION_PURPOSE),
            services.tasks,
            settings.request_timeout_ms,
            UnsupportedByPeer,
            verifies,
        )
        groups.transactional_offsets.verifier = self._verifier
        self.services = Transactions(self.coordinator, markers, self._verifier, services.timers)

    @property
    def verifications(self) -> VerifierMeter:
        return self._verifier.meter

    def start(self) -> None:
        self.coordinator.start()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after partitions and groups have applied the image."""
        self.coordinator.on_image(old, new)

    def stop(self) -> None:
        self.coordinator.stop()
        self._verifier.close()
