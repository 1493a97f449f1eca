"""DeleteAclsRequest, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteAclsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeleteAclsFilter(Struct):
    __slots__ = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", "operation", "permission_type")

    def __init__(
        self,
        *,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = "",
        pattern_type_filter: int = 3,
        principal_filter: str | None = "",
        host_filter: str | None = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type_filter = resource_type_filter
        self.resource_name_filter = resource_name_filter
        self.pattern_type_filter = pattern_type_filter
        self.principal_filter = principal_filter
        self.host_filter = host_filter
        self.operation = operation
        self.permission_type = permission_type


class DeleteAclsRequest(Message):
    __slots__ = ("filters",)
    API_KEY: ClassVar[int | None] = 31
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":31,"type":"request","listeners":["broker","controller"],"name":"DeleteAclsRequest","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"Filters","type":"[]DeleteAclsFilter","versions":"0+","fields":[{"name":"ResourceTypeFilter","type":"int8","versions":"0+"},{"name":"ResourceNameFilter","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"PatternTypeFilter","type":"int8","versions":"1+","default":"3","ignorable":false},{"name":"PrincipalFilter","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"HostFilter","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"Operation","type":"int8","versions":"0+"},{"name":"PermissionType","type":"int8","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        filters: list[DeleteAclsFilter] = EMPTY,
    ) -> None:
        self.filters = [] if filters is EMPTY else filters
