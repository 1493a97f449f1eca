"""SaslHandshakeRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SaslHandshakeRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class SaslHandshakeRequest(Message):
    __slots__ = ("mechanism",)
    API_KEY: ClassVar[int | None] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":17,"type":"request","listeners":["broker","controller"],"name":"SaslHandshakeRequest","validVersions":"0-1","flexibleVersions":"none","fields":[{"name":"Mechanism","type":"string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        mechanism: str = "",
    ) -> None:
        self.mechanism = mechanism
