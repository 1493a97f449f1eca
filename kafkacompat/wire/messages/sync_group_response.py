"""SyncGroupResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SyncGroupResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class SyncGroupResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "protocol_type", "protocol_name", "assignment")
    API_KEY: ClassVar[int | None] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":14,"type":"response","name":"SyncGroupResponse","validVersions":"0-5","flexibleVersions":"4+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ProtocolType","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true},{"name":"ProtocolName","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true},{"name":"Assignment","type":"bytes","versions":"0+"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment
