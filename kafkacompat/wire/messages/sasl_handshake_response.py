"""SaslHandshakeResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SaslHandshakeResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class SaslHandshakeResponse(Message):
    __slots__ = ("error_code", "mechanisms")
    API_KEY: ClassVar[int | None] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":17,"type":"response","name":"SaslHandshakeResponse","validVersions":"0-1","flexibleVersions":"none","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Mechanisms","type":"[]string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.mechanisms = [] if mechanisms is EMPTY else mechanisms
