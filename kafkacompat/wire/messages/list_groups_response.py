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
    DEFINITION: ClassVar[str] = "wire/ListGroupsResponse.json"

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
