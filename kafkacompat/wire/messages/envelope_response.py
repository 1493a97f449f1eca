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
    DEFINITION: ClassVar[str] = '{"apiKey":58,"type":"response","name":"EnvelopeResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ResponseData","type":"bytes","versions":"0+","nullableVersions":"0+","zeroCopy":true,"default":"null"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}'

    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
    ) -> None:
        self.response_data = response_data
        self.error_code = error_code
