"""LeaveGroupResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/LeaveGroupResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class MemberResponse(Struct):
    __slots__ = ("member_id", "group_instance_id", "error_code")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class LeaveGroupResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "members")
    API_KEY: ClassVar[int | None] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":13,"type":"response","name":"LeaveGroupResponse","validVersions":"0-5","flexibleVersions":"4+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Members","type":"[]MemberResponse","versions":"3+","fields":[{"name":"MemberId","type":"string","versions":"3+"},{"name":"GroupInstanceId","type":"string","versions":"3+","nullableVersions":"3+"},{"name":"ErrorCode","type":"int16","versions":"3+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members = [] if members is EMPTY else members
