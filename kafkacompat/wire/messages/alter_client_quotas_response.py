"""AlterClientQuotasResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterClientQuotasResponse.json."""

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


class EntryData(Struct):
    __slots__ = ("error_code", "error_message", "entity")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity = [] if entity is EMPTY else entity


class AlterClientQuotasResponse(Message):
    __slots__ = ("throttle_time_ms", "entries")
    API_KEY: ClassVar[int | None] = 49
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":49,"type":"response","name":"AlterClientQuotasResponse","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Entries","type":"[]EntryData","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"Entity","type":"[]EntityData","versions":"0+","fields":[{"name":"EntityType","type":"string","versions":"0+"},{"name":"EntityName","type":"string","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[EntryData] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries = [] if entries is EMPTY else entries
