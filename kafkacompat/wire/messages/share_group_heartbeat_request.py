"""ShareGroupHeartbeatRequest, versions 1 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ShareGroupHeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ShareGroupHeartbeatRequest(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "rack_id", "subscribed_topic_names")
    API_KEY: ClassVar[int | None] = 76
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":76,"type":"request","listeners":["broker"],"name":"ShareGroupHeartbeatRequest","validVersions":"1","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"RackId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"SubscribedTopicNames","type":"[]string","versions":"0+","nullableVersions":"0+","default":"null","entityType":"topicName"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names
