"""A broker's parts for transactions, connected: coordinator, marker writer, verifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.transaction_services import Transactions
from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.net.failures import UnsupportedByPeer
from kafkacompat.tasks import Tasks
from kafkacompat.txn.add_partitions_to_txn_manager import AddPartitionsToTxnManager, VerifierMeter
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.transaction_coordinator import (
    TransactionCoordinator,
    TransactionCoordinatorSettings,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import ProducerIds
    from kafkacompat.api.partition_services import PartitionService
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.group.group_coordinator import GroupCoordinator
    from kafkacompat.ports import Clock, Timers, Workers

MARKERS_PURPOSE = "transaction-markers"
VERIFICATION_PURPOSE = "add-partitions-to-transactions"


class TransactionsSide:
    """`services` is for the handlers. `start`, `on_image` and `stop` are as in the group coordinator."""

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        channels: Any,
        partitions: PartitionService,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        image: Callable[[], MetadataImage],
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        workers: Workers | None,
        settings: TransactionCoordinatorSettings,
        verifies: Callable[[], bool],
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """`listener_name` is the listener of the brokers. `image` returns the newest image that the partitions have
        applied. `verifies` returns the present value of transaction.partition.verification.enable. `keep`: see Steps."""
        markers = LocalMarkerWriter(partitions, groups, clock, settings.request_timeout_ms)
        self.coordinator = TransactionCoordinator(
            node_id,
            partitions,
            producer_ids,
            image,
            markers,
            channels_to(channels, image, listener_name, MARKERS_PURPOSE),
            clock,
            timers,
            tasks,
            workers,
            settings,
            keep,
        )
        self._verifier = AddPartitionsToTxnManager(
            node_id,
            image,
            self.coordinator,
            channels_to(channels, image, listener_name, VERIFICATION_PURPOSE),
            tasks,
            settings.request_timeout_ms,
            UnsupportedByPeer,
            verifies,
        )
        groups.transactional_offsets.verifier = self._verifier
        self.services = Transactions(self.coordinator, markers, self._verifier, timers)

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
