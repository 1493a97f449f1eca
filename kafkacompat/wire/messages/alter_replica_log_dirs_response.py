"""AlterReplicaLogDirsResponse, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterReplicaLogDirsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AlterReplicaLogDirPartitionResult(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class AlterReplicaLogDirTopicResult(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterReplicaLogDirsResponse(Message):
    __slots__ = ("throttle_time_ms", "results")
    API_KEY: ClassVar[int | None] = 34
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":34,"type":"response","name":"AlterReplicaLogDirsResponse","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Results","type":"[]AlterReplicaLogDirTopicResult","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]AlterReplicaLogDirPartitionResult","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
