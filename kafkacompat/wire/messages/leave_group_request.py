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
    DEFINITION: ClassVar[str] = '{"apiKey":13,"type":"request","listeners":["broker"],"name":"LeaveGroupRequest","validVersions":"0-5","flexibleVersions":"4+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0-2"},{"name":"Members","type":"[]MemberIdentity","versions":"3+","fields":[{"name":"MemberId","type":"string","versions":"3+"},{"name":"GroupInstanceId","type":"string","versions":"3+","nullableVersions":"3+","default":"null"},{"name":"Reason","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true}]}]}'

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
