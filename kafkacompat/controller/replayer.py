"""Applies batches of records in order. Records of a metadata transaction are held back until its end (KIP-868).

It produces one image after another. metadata_delta.py applies records to an image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.controller.records import ReplayError
from kafkacompat.controller.result import RECORDS_A_STEP
from kafkacompat.tasks import TURN_COST, Work

if TYPE_CHECKING:
    from kafkacompat.controller.records import MetadataRecord

BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25


class Replayer:
    """Applies batches in order, and holds back the records of an unfinished metadata transaction (KIP-868)."""

    __slots__ = ("_delta", "_held", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """The image after the last `publish`."""
        self._delta: MetadataDelta | None = None
        self._held: list[tuple[int, Any]] | None = None

    @property
    def in_transaction(self) -> bool:
        return self._held is not None

    def copy(self) -> Replayer:
        """An independent replayer in the same state. Only between publishes."""
        other = Replayer(self.image)
        other._held = None if self._held is None else list(self._held)
        return other

    def apply(self, records: Iterable[tuple[int, Any]]) -> None:
        """Apply (api key, message) pairs in log order."""
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        replay = self._delta.replay
        for api_key, message in records:
            if BEGIN_TRANSACTION <= api_key <= ABORT_TRANSACTION:
                self._transaction(api_key, message)
            elif self._held is not None:
                self._held.append((api_key, message))
            else:
                replay(api_key, message)

    def apply_records(self, records: Iterable[MetadataRecord]) -> None:
        """Apply a command's records in order."""
        self.apply((record.message.API_KEY or 0, record.message) for record in records)

    def set_kraft_version(self, level: int) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        self._delta.features.set_kraft_version(level)

    def publish(self, offset: int, epoch: int) -> MetadataImage:
        """A new image at this offset, without the records of an open transaction."""
        if self._delta is None:
            self.image = replace(self.image, offset=offset, epoch=epoch)
        else:
            self.image = self._delta.apply(offset, epoch)
            self._delta = None
        return self.image

    def _transaction(self, api_key: int, message: Any) -> None:
        assert self._delta is not None
        if api_key == BEGIN_TRANSACTION:
            if self._held is not None:
                raise ReplayError("a metadata transaction begins inside another")
            self._held = []
            return
        if self._held is None:
            raise ReplayError("a metadata transaction ends that never began")
        held, self._held = self._held, None
        if api_key == END_TRANSACTION:
            for each in held:
                self._delta.replay(*each)


def replayed(image: MetadataImage, records: Sequence[MetadataRecord]) -> Work[MetadataImage]:
    """The image after these records, for a command whose second step depends on its first."""
    if not records:
        return image
    delta = MetadataDelta(image)
    for number, record in enumerate(records, 1):
        assert record.message.API_KEY is not None
        delta.replay(record.message.API_KEY, record.message)
        if number % RECORDS_A_STEP == 0:
            yield TURN_COST
    return delta.apply(image.offset, image.epoch)
