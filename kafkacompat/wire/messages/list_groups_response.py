"""ListGroupsResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListGroupsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ListedGroup(Struct):
    __slots__ = ("group_id", "protocol_type", "group_state", "group_type")

    def __init__(
        self,
        *,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type


class ListGroupsResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "groups")
    API_KEY: ClassVar[int | None] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":16,"type":"response","name":"ListGroupsResponse","validVersions":"0-5","flexibleVersions":"3+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Groups","type":"[]ListedGroup","versions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"ProtocolType","type":"string","versions":"0+"},{"name":"GroupState","type":"string","versions":"4+","ignorable":true},{"name":"GroupType","type":"string","versions":"5+","ignorable":true}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups
