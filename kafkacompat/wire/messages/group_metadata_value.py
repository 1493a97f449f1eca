"""GroupMetadataValue, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/group/GroupMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class MemberMetadata(Struct):
    __slots__ = ("member_id", "group_instance_id", "client_id", "client_host", "rebalance_timeout", "session_timeout", "subscription", "assignment")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(Message):
    __slots__ = ("protocol_type", "generation", "protocol", "leader", "current_state_timestamp", "members")
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"coordinator-value","name":"GroupMetadataValue","validVersions":"0-4","flexibleVersions":"4+","commonStructs":[{"name":"MemberMetadata","versions":"0+","fields":[{"name":"memberId","versions":"0+","type":"string"},{"name":"groupInstanceId","versions":"3+","type":"string","default":"null","nullableVersions":"3+","ignorable":true},{"name":"clientId","versions":"0+","type":"string"},{"name":"clientHost","versions":"0+","type":"string"},{"name":"rebalanceTimeout","versions":"1+","type":"int32","default":-1,"ignorable":true},{"name":"sessionTimeout","versions":"0+","type":"int32"},{"name":"subscription","versions":"0+","type":"bytes"},{"name":"assignment","versions":"0+","type":"bytes"}]}],"fields":[{"name":"protocolType","versions":"0+","type":"string"},{"name":"generation","versions":"0+","type":"int32"},{"name":"protocol","versions":"0+","type":"string","nullableVersions":"0+"},{"name":"leader","versions":"0+","type":"string","nullableVersions":"0+"},{"name":"currentStateTimestamp","versions":"2+","type":"int64","default":-1,"ignorable":true},{"name":"members","versions":"0+","type":"[]MemberMetadata"}]}'

    def __init__(
        self,
        *,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = "",
        leader: str | None = "",
        current_state_timestamp: int = -1,
        members: list[MemberMetadata] = EMPTY,
    ) -> None:
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members = [] if members is EMPTY else members
