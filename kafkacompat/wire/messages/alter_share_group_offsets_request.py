"""AlterShareGroupOffsetsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterShareGroupOffsetsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    __slots__ = ("partition_index", "start_offset")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset


class AlterShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsRequest(Message):
    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int | None] = 91
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":91,"type":"request","listeners":["broker"],"name":"AlterShareGroupOffsetsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"Topics","type":"[]AlterShareGroupOffsetsRequestTopic","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]AlterShareGroupOffsetsRequestPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
