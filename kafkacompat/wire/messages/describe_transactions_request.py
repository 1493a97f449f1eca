"""DescribeTransactionsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeTransactionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class DescribeTransactionsRequest(Message):
    __slots__ = ("transactional_ids",)
    API_KEY: ClassVar[int | None] = 65
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":65,"type":"request","listeners":["broker"],"name":"DescribeTransactionsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TransactionalIds","entityType":"transactionalId","type":"[]string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        transactional_ids: list[str] = EMPTY,
    ) -> None:
        self.transactional_ids = [] if transactional_ids is EMPTY else transactional_ids
