"""DescribeGroupsRequest, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeGroupsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class DescribeGroupsRequest(Message):
    __slots__ = ("groups", "include_authorized_operations")
    API_KEY: ClassVar[int | None] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 5
    DEFINITION: ClassVar[str] = '{"apiKey":15,"type":"request","listeners":["broker"],"name":"DescribeGroupsRequest","validVersions":"0-6","flexibleVersions":"5+","fields":[{"name":"Groups","type":"[]string","versions":"0+","entityType":"groupId"},{"name":"IncludeAuthorizedOperations","type":"bool","versions":"3+"}]}'

    def __init__(
        self,
        *,
        groups: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
        self.include_authorized_operations = include_authorized_operations
