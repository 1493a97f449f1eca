"""The active controller's state: the newest image, including uncommitted records, and the records of an activation.

Pure. A command reads `image` and gives a result. Its records are replayed at once, so that the next command sees them
before they are committed. Images are immutable, so a lost leadership only drops the newest ones (`revert`). Follows
Kafka's QuorumController; logs and replies are unknown here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkacompat.controller.features import (
    METADATA_VERSION,
    default_levels,
    elr_enabled,
    metadata_transactions_supported,
    metadata_version,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_delta import Replayer
from kafkacompat.controller.records import MetadataRecord, RecordClasses, frame_all, unframe
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.messages.abort_transaction_record import AbortTransactionRecord
from kafkacompat.wire.messages.begin_transaction_record import BeginTransactionRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.end_transaction_record import EndTransactionRecord
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ControllerCore:
    """Call `load_*` while the log is read, then `mark` and `revert` around the records of each command."""

    __slots__ = ("_classes", "_replayer", "settings")

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self._classes = RecordClasses()
        self._replayer = Replayer(MetadataImage())

    @property
    def image(self) -> MetadataImage:
        """The image with everything accepted, committed or not."""
        return self._replayer.image

    @property
    def in_transaction(self) -> bool:
        return self._replayer.in_transaction

    def forget(self) -> None:
        """Start again from nothing, because a snapshot replaces everything."""
        self._replayer = Replayer(MetadataImage())

    def load_values(self, values: Iterable[bytes]) -> None:
        """Framed values in log order. They are visible after `finish_loading`. A ReplayError is fatal."""
        classes = self._classes
        self._replayer.apply([unframe(value, classes) for value in values])

    def load_kraft_version(self, level: int) -> None:
        self._replayer.set_kraft_version(level)

    def finish_loading(self, last_offset: int, epoch: int) -> MetadataImage:
        return self._replayer.publish(last_offset, epoch)

    def decode(self, values: Iterable[bytes]) -> list[MetadataRecord]:
        """Decode framed values as records of version 0, the only version in the files of `format`."""
        return [MetadataRecord(unframe(value, self._classes)[1], 0) for value in values]

    def activation_records(self, bootstrap: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """The first records of a new active controller: the end of a transaction left open, or the first records of a
        new log."""
        aborted: list[MetadataRecord] = []
        if self._replayer.in_transaction:
            aborted = [MetadataRecord(AbortTransactionRecord(reason="Controller failover"), 0)]
        if METADATA_VERSION in self.image.features:
            return aborted
        # A controller may have begun the log and died: its records are written again.
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
        return aborted + records

    def mark(self) -> Replayer:
        """A state to which `revert` can return, or in which a command's records are replayed before they are accepted.
        Only between commands."""
        return self._replayer.copy()

    def revert(self, mark: Replayer) -> None:
        self._replayer = mark


def bootstrap_values(
    levels: Sequence[tuple[str, int]] | None = None, users: Sequence[UserScramCredentialRecord] = ()
) -> tuple[bytes, ...]:
    """Framed FeatureLevelRecords, metadata.version first, then the SCRAM credentials of users."""
    records = [
        MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in levels or default_levels()
    ]
    records += [MetadataRecord(user, 0) for user in users]
    return tuple(frame_all(records))
