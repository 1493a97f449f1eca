"""DescribeGroupsResponse, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeGroupsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribedGroupMember(Struct):
    __slots__ = ("member_id", "group_instance_id", "client_id", "client_host", "member_metadata", "member_assignment")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment


class DescribedGroup(Struct):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "protocol_type", "protocol_data", "members", "authorized_operations")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: list[DescribedGroupMember] = EMPTY,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members = [] if members is EMPTY else members
        self.authorized_operations = authorized_operations


class DescribeGroupsResponse(Message):
    __slots__ = ("throttle_time_ms", "groups")
    API_KEY: ClassVar[int | None] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 5
    DEFINITION: ClassVar[str] = '{"apiKey":15,"type":"response","name":"DescribeGroupsResponse","validVersions":"0-6","flexibleVersions":"5+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"Groups","type":"[]DescribedGroup","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"6+","nullableVersions":"6+","default":"null"},{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GroupState","type":"string","versions":"0+"},{"name":"ProtocolType","type":"string","versions":"0+"},{"name":"ProtocolData","type":"string","versions":"0+"},{"name":"Members","type":"[]DescribedGroupMember","versions":"0+","fields":[{"name":"MemberId","type":"string","versions":"0+"},{"name":"GroupInstanceId","type":"string","versions":"4+","ignorable":true,"nullableVersions":"4+","default":"null"},{"name":"ClientId","type":"string","versions":"0+"},{"name":"ClientHost","type":"string","versions":"0+"},{"name":"MemberMetadata","type":"bytes","versions":"0+"},{"name":"MemberAssignment","type":"bytes","versions":"0+"}]},{"name":"AuthorizedOperations","type":"int32","versions":"3+","default":"-2147483648"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups
