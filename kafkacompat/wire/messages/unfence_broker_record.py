"""UnfenceBrokerRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/UnfenceBrokerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UnfenceBrokerRecord(Message):
    __slots__ = ("id", "epoch")
    API_KEY: ClassVar[int | None] = 8
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":8,"type":"metadata","name":"UnfenceBrokerRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Id","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"Epoch","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        id: int = 0,
        epoch: int = 0,
    ) -> None:
        self.id = id
        self.epoch = epoch
