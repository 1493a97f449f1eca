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
    DEFINITION: ClassVar[str] = "wire/DescribeGroupsRequest.json"

    def __init__(
        self,
        *,
        groups: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
        self.include_authorized_operations = include_authorized_operations
