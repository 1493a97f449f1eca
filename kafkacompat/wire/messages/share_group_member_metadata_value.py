"""ShareGroupMemberMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupMemberMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class ShareGroupMemberMetadataValue(Message):
    __slots__ = ("rack_id", "client_id", "client_host", "subscribed_topic_names")
    API_KEY: ClassVar[int | None] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":10,"type":"coordinator-value","name":"ShareGroupMemberMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"RackId","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"ClientId","versions":"0+","type":"string"},{"name":"ClientHost","versions":"0+","type":"string"},{"name":"SubscribedTopicNames","versions":"0+","type":"[]string"}]}'

    def __init__(
        self,
        *,
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
    ) -> None:
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
