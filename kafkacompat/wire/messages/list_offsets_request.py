"""ListOffsetsRequest, versions 1 to 11.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListOffsetsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ListOffsetsPartition(Struct):
    __slots__ = ("partition_index", "current_leader_epoch", "timestamp")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        current_leader_epoch: int = -1,
        timestamp: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp


class ListOffsetsTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class ListOffsetsRequest(Message):
    __slots__ = ("replica_id", "isolation_level", "topics", "timeout_ms")
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 11
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"request","listeners":["broker"],"name":"ListOffsetsRequest","validVersions":"1-11","flexibleVersions":"6+","latestVersionUnstable":false,"fields":[{"name":"ReplicaId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"IsolationLevel","type":"int8","versions":"2+"},{"name":"Topics","type":"[]ListOffsetsTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]ListOffsetsPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"CurrentLeaderEpoch","type":"int32","versions":"4+","default":"-1","ignorable":true},{"name":"Timestamp","type":"int64","versions":"0+"}]}]},{"name":"TimeoutMs","type":"int32","versions":"10+","ignorable":true}]}'

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
