"""DescribeShareGroupOffsetsRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeShareGroupOffsetsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeShareGroupOffsetsRequestGroup(Struct):
    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics


class DescribeShareGroupOffsetsRequest(Message):
    __slots__ = ("groups",)
    API_KEY: ClassVar[int | None] = 90
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":90,"type":"request","listeners":["broker"],"name":"DescribeShareGroupOffsetsRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"Groups","type":"[]DescribeShareGroupOffsetsRequestGroup","versions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"Topics","type":"[]DescribeShareGroupOffsetsRequestTopic","versions":"0+","nullableVersions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] = EMPTY,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
