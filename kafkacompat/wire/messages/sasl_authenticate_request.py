"""SaslAuthenticateRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SaslAuthenticateRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class SaslAuthenticateRequest(Message):
    __slots__ = ("auth_bytes",)
    API_KEY: ClassVar[int | None] = 36
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":36,"type":"request","listeners":["broker","controller"],"name":"SaslAuthenticateRequest","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"AuthBytes","type":"bytes","versions":"0+"}]}'

    def __init__(
        self,
        *,
        auth_bytes: bytes = b"",
    ) -> None:
        self.auth_bytes = auth_bytes
