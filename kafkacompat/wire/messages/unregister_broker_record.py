"""UnregisterBrokerRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/UnregisterBrokerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UnregisterBrokerRecord(Message):
    __slots__ = ("broker_id", "broker_epoch")
    API_KEY: ClassVar[int | None] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":1,"type":"metadata","name":"UnregisterBrokerRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
