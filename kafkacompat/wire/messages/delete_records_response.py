"""DeleteRecordsResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteRecordsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeleteRecordsPartitionResult(Struct):
    __slots__ = ("partition_index", "low_watermark", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        low_watermark: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code


class DeleteRecordsTopicResult(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DeleteRecordsPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class DeleteRecordsResponse(Message):
    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":21,"type":"response","name":"DeleteRecordsResponse","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Topics","type":"[]DeleteRecordsTopicResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Partitions","type":"[]DeleteRecordsPartitionResult","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"LowWatermark","type":"int64","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
