"""DescribeClientQuotasResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeClientQuotasResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class EntityData(Struct):
    __slots__ = ("entity_type", "entity_name")

    def __init__(
        self,
        *,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class ValueData(Struct):
    __slots__ = ("key", "value")

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value


class EntryData(Struct):
    __slots__ = ("entity", "values")

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        values: list[ValueData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.values = [] if values is EMPTY else values


class DescribeClientQuotasResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "entries")
    API_KEY: ClassVar[int | None] = 48
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":48,"type":"response","name":"DescribeClientQuotasResponse","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"Entries","type":"[]EntryData","versions":"0+","nullableVersions":"0+","fields":[{"name":"Entity","type":"[]EntityData","versions":"0+","fields":[{"name":"EntityType","type":"string","versions":"0+"},{"name":"EntityName","type":"string","versions":"0+","nullableVersions":"0+"}]},{"name":"Values","type":"[]ValueData","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"float64","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | None = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = [] if entries is EMPTY else entries
