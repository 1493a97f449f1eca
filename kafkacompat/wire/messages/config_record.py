"""ConfigRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/ConfigRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ConfigRecord(Message):
    __slots__ = ("resource_type", "resource_name", "name", "value")
    API_KEY: ClassVar[int | None] = 4
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":4,"type":"metadata","name":"ConfigRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ResourceType","type":"int8","versions":"0+"},{"name":"ResourceName","type":"string","versions":"0+"},{"name":"Name","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+","nullableVersions":"0+"}]}'

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.name = name
        self.value = value
