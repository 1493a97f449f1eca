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
    DEFINITION: ClassVar[str] = "wire/DescribeTopicPartitionsRequest.json"

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
