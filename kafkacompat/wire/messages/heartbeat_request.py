"""HeartbeatRequest, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/HeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class HeartbeatRequest(Message):
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id")
    API_KEY: ClassVar[int | None] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":12,"type":"request","listeners":["broker"],"name":"HeartbeatRequest","validVersions":"0-4","flexibleVersions":"4+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GenerationId","type":"int32","versions":"0+"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"GroupInstanceId","type":"string","versions":"3+","nullableVersions":"3+","default":"null"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
