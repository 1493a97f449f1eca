"""DescribeTopicPartitionsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeTopicPartitionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicRequest(Struct):
    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name


class Cursor(Struct):
    __slots__ = ("topic_name", "partition_index")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsRequest(Message):
    __slots__ = ("topics", "response_partition_limit", "cursor")
    API_KEY: ClassVar[int | None] = 75
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":75,"type":"request","listeners":["broker"],"name":"DescribeTopicPartitionsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Topics","type":"[]TopicRequest","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"}]},{"name":"ResponsePartitionLimit","type":"int32","versions":"0+","default":"2000"},{"name":"Cursor","type":"Cursor","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"PartitionIndex","type":"int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor
