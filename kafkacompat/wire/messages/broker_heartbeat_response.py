"""BrokerHeartbeatResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/BrokerHeartbeatResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class BrokerHeartbeatResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "is_caught_up", "is_fenced", "should_shut_down")
    API_KEY: ClassVar[int | None] = 63
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":63,"type":"response","name":"BrokerHeartbeatResponse","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"IsCaughtUp","type":"bool","versions":"0+","default":"false"},{"name":"IsFenced","type":"bool","versions":"0+","default":"true"},{"name":"ShouldShutDown","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        is_caught_up: bool = False,
        is_fenced: bool = True,
        should_shut_down: bool = False,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.is_caught_up = is_caught_up
        self.is_fenced = is_fenced
        self.should_shut_down = should_shut_down
