"""ListConfigResourcesResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListConfigResourcesResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ConfigResource(Struct):
    __slots__ = ("resource_name", "resource_type")

    def __init__(
        self,
        *,
        resource_name: str = "",
        resource_type: int = 16,
    ) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type


class ListConfigResourcesResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "config_resources")
    API_KEY: ClassVar[int | None] = 74
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":74,"type":"response","name":"ListConfigResourcesResponse","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ConfigResources","type":"[]ConfigResource","versions":"0+","fields":[{"name":"ResourceName","type":"string","versions":"0+"},{"name":"ResourceType","type":"int8","versions":"1+","ignorable":true,"default":16}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources = [] if config_resources is EMPTY else config_resources
