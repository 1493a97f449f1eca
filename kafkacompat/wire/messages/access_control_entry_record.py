"""AccessControlEntryRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/AccessControlEntryRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class AccessControlEntryRecord(Message):
    __slots__ = ("id", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    API_KEY: ClassVar[int | None] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":18,"type":"metadata","name":"AccessControlEntryRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Id","type":"uuid","versions":"0+"},{"name":"ResourceType","type":"int8","versions":"0+"},{"name":"ResourceName","type":"string","versions":"0+"},{"name":"PatternType","type":"int8","versions":"0+"},{"name":"Principal","type":"string","versions":"0+"},{"name":"Host","type":"string","versions":"0+"},{"name":"Operation","type":"int8","versions":"0+"},{"name":"PermissionType","type":"int8","versions":"0+"}]}'

    def __init__(
        self,
        *,
        id: bytes = bytes(16),
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 0,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.id = id
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type
