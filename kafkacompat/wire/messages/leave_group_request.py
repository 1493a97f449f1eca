"""LeaveGroupRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/LeaveGroupRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class MemberIdentity(Struct):
    __slots__ = ("member_id", "group_instance_id", "reason")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class LeaveGroupRequest(Message):
    __slots__ = ("group_id", "member_id", "members")
    API_KEY: ClassVar[int | None] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = "wire/LeaveGroupRequest.json"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members = [] if members is EMPTY else members
