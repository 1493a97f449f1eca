"""WriteShareGroupStateRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/WriteShareGroupStateRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class PartitionData(Struct):
    __slots__ = ("partition", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "state_batches")

    def __init__(
        self,
        *,
        partition: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches = [] if state_batches is EMPTY else state_batches


class WriteStateData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class WriteShareGroupStateRequest(Message):
    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int | None] = 85
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":85,"type":"request","listeners":["broker"],"name":"WriteShareGroupStateRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"GroupId","type":"string","versions":"0+"},{"name":"Topics","type":"[]WriteStateData","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"StateEpoch","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"},{"name":"DeliveryCompleteCount","type":"int32","versions":"1+","ignorable":true,"default":"-1"},{"name":"StateBatches","type":"[]StateBatch","versions":"0+","fields":[{"name":"FirstOffset","type":"int64","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"DeliveryState","type":"int8","versions":"0+"},{"name":"DeliveryCount","type":"int16","versions":"0+"}]}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[WriteStateData] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
