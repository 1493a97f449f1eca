"""AllocateProducerIdsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AllocateProducerIdsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class AllocateProducerIdsRequest(Message):
    __slots__ = ("broker_id", "broker_epoch")
    API_KEY: ClassVar[int | None] = 67
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":67,"type":"request","listeners":["controller"],"name":"AllocateProducerIdsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
