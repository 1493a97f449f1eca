"""RenewDelegationTokenRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/RenewDelegationTokenRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RenewDelegationTokenRequest(Message):
    __slots__ = ("hmac", "renew_period_ms")
    API_KEY: ClassVar[int | None] = 39
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":39,"type":"request","listeners":["broker","controller"],"name":"RenewDelegationTokenRequest","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"Hmac","type":"bytes","versions":"0+"},{"name":"RenewPeriodMs","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        renew_period_ms: int = 0,
    ) -> None:
        self.hmac = hmac
        self.renew_period_ms = renew_period_ms
