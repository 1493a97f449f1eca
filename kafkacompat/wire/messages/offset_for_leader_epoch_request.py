"""OffsetForLeaderEpochRequest, versions 2 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetForLeaderEpochRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetForLeaderPartition(Struct):
    __slots__ = ("partition", "current_leader_epoch", "leader_epoch")

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        leader_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch


class OffsetForLeaderTopic(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[OffsetForLeaderPartition] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetForLeaderEpochRequest(Message):
    __slots__ = ("replica_id", "topics")
    API_KEY: ClassVar[int | None] = 23
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":23,"type":"request","listeners":["broker"],"name":"OffsetForLeaderEpochRequest","validVersions":"2-4","flexibleVersions":"4+","fields":[{"name":"ReplicaId","type":"int32","versions":"3+","default":-2,"ignorable":true,"entityType":"brokerId"},{"name":"Topics","type":"[]OffsetForLeaderTopic","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]OffsetForLeaderPartition","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"CurrentLeaderEpoch","type":"int32","versions":"2+","default":"-1","ignorable":true},{"name":"LeaderEpoch","type":"int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderTopic] = EMPTY,
    ) -> None:
        self.replica_id = replica_id
        self.topics = [] if topics is EMPTY else topics
