"""DescribeQuorumRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeQuorumRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeQuorumRequest(Message):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int | None] = 55
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":55,"type":"request","listeners":["broker","controller"],"name":"DescribeQuorumRequest","validVersions":"0-2","flexibleVersions":"0+","latestVersionUnstable":false,"fields":[{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
