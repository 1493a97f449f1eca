"""OffsetDeleteRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetDeleteRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetDeleteRequestPartition(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteRequest(Message):
    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int | None] = 47
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":47,"type":"request","listeners":["broker"],"name":"OffsetDeleteRequest","validVersions":"0","flexibleVersions":"none","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"Topics","type":"[]OffsetDeleteRequestTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Partitions","type":"[]OffsetDeleteRequestPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetDeleteRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
