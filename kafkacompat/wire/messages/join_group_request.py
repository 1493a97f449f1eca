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
    DEFINITION: ClassVar[str] = "wire/JoinGroupRequest.json"

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
