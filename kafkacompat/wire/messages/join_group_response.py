"""JoinGroupResponse, versions 0 to 9.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/JoinGroupResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class JoinGroupResponseMember(Struct):
    __slots__ = ("member_id", "group_instance_id", "metadata")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        metadata: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata


class JoinGroupResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "generation_id", "protocol_type", "protocol_name", "leader", "skip_assignment", "member_id", "members")
    API_KEY: ClassVar[int | None] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 9
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":11,"type":"response","name":"JoinGroupResponse","validVersions":"0-9","flexibleVersions":"6+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"2+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"GenerationId","type":"int32","versions":"0+","default":"-1"},{"name":"ProtocolType","type":"string","versions":"7+","nullableVersions":"7+","default":"null","ignorable":true},{"name":"ProtocolName","type":"string","versions":"0+","nullableVersions":"7+"},{"name":"Leader","type":"string","versions":"0+"},{"name":"SkipAssignment","type":"bool","versions":"9+","default":"false"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"Members","type":"[]JoinGroupResponseMember","versions":"0+","fields":[{"name":"MemberId","type":"string","versions":"0+"},{"name":"GroupInstanceId","type":"string","versions":"5+","ignorable":true,"nullableVersions":"5+","default":"null"},{"name":"Metadata","type":"bytes","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponseMember] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.member_id = member_id
        self.members = [] if members is EMPTY else members
