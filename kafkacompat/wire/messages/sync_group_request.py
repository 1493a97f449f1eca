"""SyncGroupRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SyncGroupRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class SyncGroupRequestAssignment(Struct):
    __slots__ = ("member_id", "assignment")

    def __init__(
        self,
        *,
        member_id: str = "",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.assignment = assignment


class SyncGroupRequest(Message):
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id", "protocol_type", "protocol_name", "assignments")
    API_KEY: ClassVar[int | None] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":14,"type":"request","listeners":["broker"],"name":"SyncGroupRequest","validVersions":"0-5","flexibleVersions":"4+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GenerationId","type":"int32","versions":"0+"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"GroupInstanceId","type":"string","versions":"3+","nullableVersions":"3+","default":"null"},{"name":"ProtocolType","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true},{"name":"ProtocolName","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true},{"name":"Assignments","type":"[]SyncGroupRequestAssignment","versions":"0+","fields":[{"name":"MemberId","type":"string","versions":"0+"},{"name":"Assignment","type":"bytes","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequestAssignment] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments = [] if assignments is EMPTY else assignments
