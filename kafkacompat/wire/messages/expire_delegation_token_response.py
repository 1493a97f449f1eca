"""ExpireDelegationTokenResponse, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ExpireDelegationTokenResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ExpireDelegationTokenResponse(Message):
    __slots__ = ("error_code", "expiry_timestamp_ms", "throttle_time_ms")
    API_KEY: ClassVar[int | None] = 40
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":40,"type":"response","name":"ExpireDelegationTokenResponse","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ExpiryTimestampMs","type":"int64","versions":"0+"},{"name":"ThrottleTimeMs","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.throttle_time_ms = throttle_time_ms
