"""ListOffsetsResponse, versions 1 to 11.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListOffsetsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ListOffsetsPartitionResponse(Struct):
    __slots__ = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch


class ListOffsetsTopicResponse(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartitionResponse] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class ListOffsetsResponse(Message):
    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 11
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"response","name":"ListOffsetsResponse","validVersions":"1-11","flexibleVersions":"6+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"2+","ignorable":true},{"name":"Topics","type":"[]ListOffsetsTopicResponse","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]ListOffsetsPartitionResponse","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Timestamp","type":"int64","versions":"1+","default":"-1","ignorable":false},{"name":"Offset","type":"int64","versions":"1+","default":"-1","ignorable":false},{"name":"LeaderEpoch","type":"int32","versions":"4+","default":"-1"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsTopicResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
