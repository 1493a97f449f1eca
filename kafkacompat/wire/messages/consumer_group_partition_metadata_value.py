"""ConsumerGroupPartitionMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupPartitionMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionMetadata(Struct):
    __slots__ = ("partition", "racks")

    def __init__(
        self,
        *,
        partition: int = 0,
        racks: list[str] = EMPTY,
    ) -> None:
        self.partition = partition
        self.racks = [] if racks is EMPTY else racks


class TopicMetadata(Struct):
    __slots__ = ("topic_id", "topic_name", "num_partitions", "partition_metadata")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: list[PartitionMetadata] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata = [] if partition_metadata is EMPTY else partition_metadata


class ConsumerGroupPartitionMetadataValue(Message):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int | None] = 4
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":4,"type":"coordinator-value","name":"ConsumerGroupPartitionMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Topics","versions":"0+","type":"[]TopicMetadata","fields":[{"name":"TopicId","versions":"0+","type":"uuid"},{"name":"TopicName","versions":"0+","type":"string"},{"name":"NumPartitions","versions":"0+","type":"int32"},{"name":"PartitionMetadata","versions":"0+","type":"[]PartitionMetadata","fields":[{"name":"Partition","versions":"0+","type":"int32"},{"name":"Racks","versions":"0+","type":"[]string"}]}]}]}'

    def __init__(
        self,
        *,
        topics: list[TopicMetadata] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
