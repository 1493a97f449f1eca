"""RequestHeader, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/RequestHeader.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RequestHeader(Message):
    __slots__ = ("request_api_key", "request_api_version", "correlation_id", "client_id")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"type":"header","name":"RequestHeader","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"RequestApiKey","type":"int16","versions":"0+"},{"name":"RequestApiVersion","type":"int16","versions":"0+"},{"name":"CorrelationId","type":"int32","versions":"0+"},{"name":"ClientId","type":"string","versions":"1+","nullableVersions":"1+","flexibleVersions":"none"}]}'

    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = "",
    ) -> None:
        self.request_api_key = request_api_key
        self.request_api_version = request_api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
