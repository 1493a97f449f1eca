"""FenceBrokerRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/FenceBrokerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class FenceBrokerRecord(Message):
    __slots__ = ("id", "epoch")
    API_KEY: ClassVar[int | None] = 7
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":7,"type":"metadata","name":"FenceBrokerRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Id","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"Epoch","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        id: int = 0,
        epoch: int = 0,
    ) -> None:
        self.id = id
        self.epoch = epoch
