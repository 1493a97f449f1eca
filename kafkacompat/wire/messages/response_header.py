"""ResponseHeader, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ResponseHeader.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ResponseHeader(Message):
    __slots__ = ("correlation_id",)
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"type":"header","name":"ResponseHeader","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"CorrelationId","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        correlation_id: int = 0,
    ) -> None:
        self.correlation_id = correlation_id
