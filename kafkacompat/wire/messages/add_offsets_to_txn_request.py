"""AddOffsetsToTxnRequest, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AddOffsetsToTxnRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class AddOffsetsToTxnRequest(Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "group_id")
    API_KEY: ClassVar[int | None] = 25
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":25,"type":"request","listeners":["broker"],"name":"AddOffsetsToTxnRequest","validVersions":"0-4","flexibleVersions":"3+","fields":[{"name":"TransactionalId","type":"string","versions":"0+","entityType":"transactionalId"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"}]}'

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.group_id = group_id
