"""ProducerIdsRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/ProducerIdsRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ProducerIdsRecord(Message):
    __slots__ = ("broker_id", "broker_epoch", "next_producer_id")
    API_KEY: ClassVar[int | None] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":15,"type":"metadata","name":"ProducerIdsRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"},{"name":"NextProducerId","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        next_producer_id: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.next_producer_id = next_producer_id
