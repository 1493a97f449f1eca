"""AlterShareGroupOffsetsResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterShareGroupOffsetsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AlterShareGroupOffsetsResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code", "error_message")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class AlterShareGroupOffsetsResponseTopic(Struct):
    __slots__ = ("topic_name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[AlterShareGroupOffsetsResponsePartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "responses")
    API_KEY: ClassVar[int | None] = 91
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":91,"type":"response","name":"AlterShareGroupOffsetsResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"Responses","type":"[]AlterShareGroupOffsetsResponseTopic","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]AlterShareGroupOffsetsResponsePartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses
