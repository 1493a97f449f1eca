"""AssignReplicasToDirsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AssignReplicasToDirsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class DirectoryData(Struct):
    __slots__ = ("id", "topics")

    def __init__(
        self,
        *,
        id: bytes = bytes(16),
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.id = id
        self.topics = [] if topics is EMPTY else topics


class AssignReplicasToDirsRequest(Message):
    __slots__ = ("broker_id", "broker_epoch", "directories")
    API_KEY: ClassVar[int | None] = 73
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":73,"type":"request","listeners":["controller"],"name":"AssignReplicasToDirsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"},{"name":"Directories","type":"[]DirectoryData","versions":"0+","fields":[{"name":"Id","type":"uuid","versions":"0+"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"}]}]}]}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        directories: list[DirectoryData] = EMPTY,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.directories = [] if directories is EMPTY else directories
