"""OffsetCommitResponse, versions 2 to 10.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetCommitResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetCommitResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetCommitResponseTopic(Struct):
    __slots__ = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[OffsetCommitResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetCommitResponse(Message):
    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 8
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_MIN: ClassVar[int] = 8
    DEFINITION: ClassVar[str] = '{"apiKey":8,"type":"response","name":"OffsetCommitResponse","validVersions":"2-10","flexibleVersions":"8+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"3+","ignorable":true},{"name":"Topics","type":"[]OffsetCommitResponseTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0-9","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"Partitions","type":"[]OffsetCommitResponsePartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
