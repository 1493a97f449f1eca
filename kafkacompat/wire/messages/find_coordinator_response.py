"""FindCoordinatorResponse, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FindCoordinatorResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Coordinator(Struct):
    __slots__ = ("key", "node_id", "host", "port", "error_code", "error_message")

    def __init__(
        self,
        *,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class FindCoordinatorResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "node_id", "host", "port", "coordinators")
    API_KEY: ClassVar[int | None] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":10,"type":"response","name":"FindCoordinatorResponse","validVersions":"0-6","flexibleVersions":"3+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0-3"},{"name":"ErrorMessage","type":"string","versions":"1-3","nullableVersions":"1-3","ignorable":true},{"name":"NodeId","type":"int32","versions":"0-3","entityType":"brokerId"},{"name":"Host","type":"string","versions":"0-3"},{"name":"Port","type":"int32","versions":"0-3"},{"name":"Coordinators","type":"[]Coordinator","versions":"4+","fields":[{"name":"Key","type":"string","versions":"4+"},{"name":"NodeId","type":"int32","versions":"4+","entityType":"brokerId"},{"name":"Host","type":"string","versions":"4+"},{"name":"Port","type":"int32","versions":"4+"},{"name":"ErrorCode","type":"int16","versions":"4+"},{"name":"ErrorMessage","type":"string","versions":"4+","nullableVersions":"4+","ignorable":true}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators = [] if coordinators is EMPTY else coordinators
