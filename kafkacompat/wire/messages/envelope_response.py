"""EnvelopeResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EnvelopeResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EnvelopeResponse(Message):
    __slots__ = ("response_data", "error_code")
    API_KEY: ClassVar[int | None] = 58
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = "wire/EnvelopeResponse.json"

    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
    ) -> None:
        self.response_data = response_data
        self.error_code = error_code
