"""ReadShareGroupStateSummaryResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ReadShareGroupStateSummaryResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count


class ReadStateSummaryResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ReadShareGroupStateSummaryResponse(Message):
    __slots__ = ("results",)
    API_KEY: ClassVar[int | None] = 87
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":87,"type":"response","name":"ReadShareGroupStateSummaryResponse","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"Results","type":"[]ReadStateSummaryResult","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionResult","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"StateEpoch","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"},{"name":"DeliveryCompleteCount","type":"int32","versions":"1+","ignorable":true,"default":"-1"}]}]}]}'

    def __init__(
        self,
        *,
        results: list[ReadStateSummaryResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
