"""BrokerRegistrationResponse, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/BrokerRegistrationResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class BrokerRegistrationResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "broker_epoch")
    API_KEY: ClassVar[int | None] = 62
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":62,"type":"response","name":"BrokerRegistrationResponse","validVersions":"0-4","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.broker_epoch = broker_epoch
