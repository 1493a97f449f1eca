"""AddOffsetsToTxnResponse, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AddOffsetsToTxnResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class AddOffsetsToTxnResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code")
    API_KEY: ClassVar[int | None] = 25
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":25,"type":"response","name":"AddOffsetsToTxnResponse","validVersions":"0-4","flexibleVersions":"3+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
