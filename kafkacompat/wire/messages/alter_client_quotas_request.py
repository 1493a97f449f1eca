"""AlterClientQuotasRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterClientQuotasRequest.json."""

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


class OpData(Struct):
    __slots__ = ("key", "value", "remove")

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class EntryData(Struct):
    __slots__ = ("entity", "ops")

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        ops: list[OpData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.ops = [] if ops is EMPTY else ops


class AlterClientQuotasRequest(Message):
    __slots__ = ("entries", "validate_only")
    API_KEY: ClassVar[int | None] = 49
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":49,"type":"request","listeners":["broker","controller"],"name":"AlterClientQuotasRequest","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"Entries","type":"[]EntryData","versions":"0+","fields":[{"name":"Entity","type":"[]EntityData","versions":"0+","fields":[{"name":"EntityType","type":"string","versions":"0+"},{"name":"EntityName","type":"string","versions":"0+","nullableVersions":"0+"}]},{"name":"Ops","type":"[]OpData","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"float64","versions":"0+"},{"name":"Remove","type":"bool","versions":"0+"}]}]},{"name":"ValidateOnly","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        entries: list[EntryData] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.entries = [] if entries is EMPTY else entries
        self.validate_only = validate_only
