"""InitProducerIdRequest, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/InitProducerIdRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class InitProducerIdRequest(Message):
    __slots__ = ("transactional_id", "transaction_timeout_ms", "producer_id", "producer_epoch", "enable_2pc", "keep_prepared_txn")
    API_KEY: ClassVar[int | None] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":22,"type":"request","listeners":["broker"],"name":"InitProducerIdRequest","validVersions":"0-6","flexibleVersions":"2+","latestVersionUnstable":true,"fields":[{"name":"TransactionalId","type":"string","versions":"0+","nullableVersions":"0+","entityType":"transactionalId"},{"name":"TransactionTimeoutMs","type":"int32","versions":"0+"},{"name":"ProducerId","type":"int64","versions":"3+","default":"-1","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"3+","default":"-1"},{"name":"Enable2Pc","type":"bool","versions":"6+","default":"false"},{"name":"KeepPreparedTxn","type":"bool","versions":"6+","default":"false"}]}'

    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable_2pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.enable_2pc = enable_2pc
        self.keep_prepared_txn = keep_prepared_txn
