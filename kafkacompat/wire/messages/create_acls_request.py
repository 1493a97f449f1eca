"""CreateAclsRequest, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateAclsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AclCreation(Struct):
    __slots__ = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        resource_pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class CreateAclsRequest(Message):
    __slots__ = ("creations",)
    API_KEY: ClassVar[int | None] = 30
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":30,"type":"request","listeners":["broker","controller"],"name":"CreateAclsRequest","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"Creations","type":"[]AclCreation","versions":"0+","fields":[{"name":"ResourceType","type":"int8","versions":"0+"},{"name":"ResourceName","type":"string","versions":"0+"},{"name":"ResourcePatternType","type":"int8","versions":"1+","default":"3"},{"name":"Principal","type":"string","versions":"0+"},{"name":"Host","type":"string","versions":"0+"},{"name":"Operation","type":"int8","versions":"0+"},{"name":"PermissionType","type":"int8","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        creations: list[AclCreation] = EMPTY,
    ) -> None:
        self.creations = [] if creations is EMPTY else creations
