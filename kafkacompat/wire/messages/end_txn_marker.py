"""EndTxnMarker, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EndTxnMarker.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EndTxnMarker(Message):
    __slots__ = ("coordinator_epoch",)
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"type":"data","name":"EndTxnMarker","validVersions":"0","flexibleVersions":"none","fields":[{"name":"CoordinatorEpoch","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        coordinator_epoch: int = 0,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
