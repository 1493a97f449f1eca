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
    DEFINITION: ClassVar[str] = "metadata/ClientQuotaRecord.json"

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
