"""TransactionLogKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/transaction/TransactionLogKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class TransactionLogKey(Message):
    __slots__ = ("transactional_id",)
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-key","name":"TransactionLogKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"TransactionalId","type":"string","versions":"0"}]}'

    def __init__(
        self,
        *,
        transactional_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
