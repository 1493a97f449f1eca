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
    DEFINITION: ClassVar[str] = "wire/InitProducerIdRequest.json"

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
