"""DeleteShareGroupOffsetsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteShareGroupOffsetsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name",)

    def __init__(
        self,
        *,
        topic_name: str = "",
    ) -> None:
        self.topic_name = topic_name


class DeleteShareGroupOffsetsRequest(Message):
    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int | None] = 92
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":92,"type":"request","listeners":["broker"],"name":"DeleteShareGroupOffsetsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"Topics","type":"[]DeleteShareGroupOffsetsRequestTopic","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
