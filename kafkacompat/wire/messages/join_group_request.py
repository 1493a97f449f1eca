"""JoinGroupRequest, versions 0 to 9.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/JoinGroupRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class JoinGroupRequestProtocol(Struct):
    __slots__ = ("name", "metadata")

    def __init__(
        self,
        *,
        name: str = "",
        metadata: bytes = b"",
    ) -> None:
        self.name = name
        self.metadata = metadata


class JoinGroupRequest(Message):
    __slots__ = ("group_id", "session_timeout_ms", "rebalance_timeout_ms", "member_id", "group_instance_id", "protocol_type", "protocols", "reason")
    API_KEY: ClassVar[int | None] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 9
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":11,"type":"request","listeners":["broker"],"name":"JoinGroupRequest","validVersions":"0-9","flexibleVersions":"6+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"SessionTimeoutMs","type":"int32","versions":"0+"},{"name":"RebalanceTimeoutMs","type":"int32","versions":"1+","default":"-1","ignorable":true},{"name":"MemberId","type":"string","versions":"0+"},{"name":"GroupInstanceId","type":"string","versions":"5+","nullableVersions":"5+","default":"null"},{"name":"ProtocolType","type":"string","versions":"0+"},{"name":"Protocols","type":"[]JoinGroupRequestProtocol","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Metadata","type":"bytes","versions":"0+"}]},{"name":"Reason","type":"string","versions":"8+","nullableVersions":"8+","default":"null","ignorable":true}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequestProtocol] = EMPTY,
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocols = [] if protocols is EMPTY else protocols
        self.reason = reason
