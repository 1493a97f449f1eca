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
    DEFINITION: ClassVar[str] = "wire/DescribeTransactionsRequest.json"

    def __init__(
        self,
        *,
        transactional_ids: list[str] = EMPTY,
    ) -> None:
        self.transactional_ids = [] if transactional_ids is EMPTY else transactional_ids
