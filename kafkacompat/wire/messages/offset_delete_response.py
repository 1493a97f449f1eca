"""OffsetDeleteResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetDeleteResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetDeleteResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteResponse(Message):
    __slots__ = ("error_code", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 47
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":47,"type":"response","name":"OffsetDeleteResponse","validVersions":"0","flexibleVersions":"none","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ThrottleTimeMs","type":"int32","versions":"0+","ignorable":true},{"name":"Topics","type":"[]OffsetDeleteResponseTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Partitions","type":"[]OffsetDeleteResponsePartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"ErrorCode","type":"int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
