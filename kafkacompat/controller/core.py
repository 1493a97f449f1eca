"""The active controller's state: the newest image, uncommitted records included, and what activation writes.

Pure. A command reads `image` and gives a Result; its records are replayed at once, so that the next command sees them before
they are committed. Images are immutable, so losing leadership is dropping the newest ones (`revert`). Follows Kafka's
QuorumController; knows no log and no reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkacompat.controller.features import (
    METADATA_VERSION,
    elr_enabled,
    metadata_transactions_supported,
    metadata_version,
)
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.records import MetadataRecord, RecordClasses, unframe
from kafkacompat.controller.replayer import Replayer
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.wire.messages.abort_transaction_record import AbortTransactionRecord
from kafkacompat.wire.messages.begin_transaction_record import BeginTransactionRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.end_transaction_record import EndTransactionRecord
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ControllerCore:
    """`load_*` while the log is read, then `mark` and `revert` around each command's records."""

    __slots__ = ("_classes", "_replayer", "settings")

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self._classes = RecordClasses()
        self._replayer = Replayer(MetadataImage())

    @property
    def image(self) -> MetadataImage:
        """With everything accepted, committed or not."""
        return self._replayer.image

    @property
    def in_transaction(self) -> bool:
        return self._replayer.in_transaction

    def forget(self) -> None:
        """Begin anew: a snapshot is loaded in place of everything before."""
        self._replayer = Replayer(MetadataImage())

    def load_values(self, values: Iterable[bytes]) -> None:
        """Framed values in log order; nothing shows before `finish_loading`. ReplayError is fatal."""
        classes = self._classes
        self._replayer.apply([unframe(value, classes) for value in values])

    def load_kraft_version(self, level: int) -> None:
        self._replayer.set_kraft_version(level)

    def finish_loading(self, last_offset: int, epoch: int) -> MetadataImage:
        return self._replayer.publish(last_offset, epoch)

    def decode(self, values: Iterable[bytes]) -> list[MetadataRecord]:
        """Framed values as records of version 0 (bootstrap.checkpoint holds only such)."""
        return [MetadataRecord(unframe(value, self._classes)[1], 0) for value in values]

    def activation_records(self, bootstrap: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """What a new active controller writes first: an end to a transaction left open, or the first records of a new log."""
        if self._replayer.in_transaction:
            return [MetadataRecord(AbortTransactionRecord(reason="Controller failover"), 0)]
        if METADATA_VERSION in self.image.features:
            return []
        records = list(bootstrap)
        levels = {
            record.message.name: record.message.feature_level
            for record in records
            if isinstance(record.message, FeatureLevelRecord)
        }
        if elr_enabled(levels):
            record = ConfigRecord(
                resource_type=int(ConfigResourceType.BROKER),
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(self.settings.static.get_int(MIN_INSYNC_REPLICAS)),
            )
            records.append(MetadataRecord(record, 0))
        if metadata_transactions_supported(metadata_version(levels)):
            records.insert(0, MetadataRecord(BeginTransactionRecord(name="Bootstrap records"), 0))
            records.append(MetadataRecord(EndTransactionRecord(), 0))
        return records

    def mark(self) -> Replayer:
        """Where `revert` can go back to, and where a command's records are replayed before they are accepted; between commands."""
        return self._replayer.copy()

    def revert(self, mark: Replayer) -> None:
        self._replayer = mark
