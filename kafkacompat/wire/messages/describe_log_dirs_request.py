"""DescribeLogDirsRequest, versions 1 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeLogDirsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribableLogDirTopic(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeLogDirsRequest(Message):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int | None] = 35
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":35,"type":"request","listeners":["broker"],"name":"DescribeLogDirsRequest","validVersions":"1-5","flexibleVersions":"2+","fields":[{"name":"Topics","type":"[]DescribableLogDirTopic","versions":"0+","nullableVersions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
