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
    DEFINITION: ClassVar[str] = "wire/SaslHandshakeRequest.json"

    def __init__(
        self,
        *,
        mechanism: str = "",
    ) -> None:
        self.mechanism = mechanism
