"""ClientQuotaRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/ClientQuotaRecord.json."""

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


class ClientQuotaRecord(Message):
    __slots__ = ("entity", "key", "value", "remove")
    API_KEY: ClassVar[int | None] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":14,"type":"metadata","name":"ClientQuotaRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Entity","type":"[]EntityData","versions":"0+","fields":[{"name":"EntityType","type":"string","versions":"0+"},{"name":"EntityName","type":"string","versions":"0+","nullableVersions":"0+"}]},{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"float64","versions":"0+"},{"name":"Remove","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.key = key
        self.value = value
        self.remove = remove
