"""SaslAuthenticateResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SaslAuthenticateResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class SaslAuthenticateResponse(Message):
    __slots__ = ("error_code", "error_message", "auth_bytes", "session_lifetime_ms")
    API_KEY: ClassVar[int | None] = 36
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":36,"type":"response","name":"SaslAuthenticateResponse","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"AuthBytes","type":"bytes","versions":"0+"},{"name":"SessionLifetimeMs","type":"int64","versions":"1+","default":"0","ignorable":true}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms
