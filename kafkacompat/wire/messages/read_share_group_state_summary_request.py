"""ReadShareGroupStateSummaryRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ReadShareGroupStateSummaryRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "leader_epoch")

    def __init__(
        self,
        *,
        partition: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch


class ReadStateSummaryData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ReadShareGroupStateSummaryRequest(Message):
    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int | None] = 87
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":87,"type":"request","listeners":["broker"],"name":"ReadShareGroupStateSummaryRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+"},{"name":"Topics","type":"[]ReadStateSummaryData","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[ReadStateSummaryData] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
