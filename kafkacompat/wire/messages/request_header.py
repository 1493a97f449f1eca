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
    DEFINITION: ClassVar[str] = "wire/RequestHeader.json"

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
