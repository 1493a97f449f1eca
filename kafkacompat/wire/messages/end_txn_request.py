"""EndTxnRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EndTxnRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EndTxnRequest(Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "committed")
    API_KEY: ClassVar[int | None] = 26
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":26,"type":"request","listeners":["broker"],"name":"EndTxnRequest","validVersions":"0-5","flexibleVersions":"3+","latestVersionUnstable":false,"fields":[{"name":"TransactionalId","type":"string","versions":"0+","entityType":"transactionalId"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"Committed","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
