"""StreamsGroupDescribeRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/StreamsGroupDescribeRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class StreamsGroupDescribeRequest(Message):
    __slots__ = ("group_ids", "include_authorized_operations", "include_topology_description")
    API_KEY: ClassVar[int | None] = 89
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":89,"type":"request","listeners":["broker"],"name":"StreamsGroupDescribeRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"GroupIds","type":"[]string","versions":"0+","entityType":"groupId"},{"name":"IncludeAuthorizedOperations","type":"bool","versions":"0+"},{"name":"IncludeTopologyDescription","type":"bool","versions":"1+","default":"false"}]}'

    def __init__(
        self,
        *,
        group_ids: list[str] = EMPTY,
        include_authorized_operations: bool = False,
        include_topology_description: bool = False,
    ) -> None:
        self.group_ids = [] if group_ids is EMPTY else group_ids
        self.include_authorized_operations = include_authorized_operations
        self.include_topology_description = include_topology_description
