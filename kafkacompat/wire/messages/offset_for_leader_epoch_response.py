"""OffsetForLeaderEpochResponse, versions 2 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetForLeaderEpochResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class EpochEndOffset(Struct):
    __slots__ = ("error_code", "partition", "leader_epoch", "end_offset")

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition: int = 0,
        leader_epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class OffsetForLeaderTopicResult(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[EpochEndOffset] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetForLeaderEpochResponse(Message):
    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 23
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":23,"type":"response","name":"OffsetForLeaderEpochResponse","validVersions":"2-4","flexibleVersions":"4+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"2+","ignorable":true},{"name":"Topics","type":"[]OffsetForLeaderTopicResult","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]EpochEndOffset","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Partition","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"1+","default":"-1","ignorable":true},{"name":"EndOffset","type":"int64","versions":"0+","default":"-1"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
