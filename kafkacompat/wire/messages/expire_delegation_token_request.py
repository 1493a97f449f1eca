"""ExpireDelegationTokenRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ExpireDelegationTokenRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ExpireDelegationTokenRequest(Message):
    __slots__ = ("hmac", "expiry_time_period_ms")
    API_KEY: ClassVar[int | None] = 40
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":40,"type":"request","listeners":["broker","controller"],"name":"ExpireDelegationTokenRequest","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"Hmac","type":"bytes","versions":"0+"},{"name":"ExpiryTimePeriodMs","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        expiry_time_period_ms: int = 0,
    ) -> None:
        self.hmac = hmac
        self.expiry_time_period_ms = expiry_time_period_ms
