"""AlterPartitionReassignmentsRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterPartitionReassignmentsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ReassignablePartition(Struct):
    __slots__ = ("partition_index", "replicas")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replicas: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.replicas = replicas


class ReassignableTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterPartitionReassignmentsRequest(Message):
    __slots__ = ("timeout_ms", "allow_replication_factor_change", "topics")
    API_KEY: ClassVar[int | None] = 45
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":45,"type":"request","listeners":["broker","controller"],"name":"AlterPartitionReassignmentsRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"TimeoutMs","type":"int32","versions":"0+","default":"60000"},{"name":"AllowReplicationFactorChange","type":"bool","versions":"1+","default":"true"},{"name":"Topics","type":"[]ReassignableTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]ReassignablePartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"Replicas","type":"[]int32","versions":"0+","nullableVersions":"0+","default":"null","entityType":"brokerId"}]}]}]}'

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] = EMPTY,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.topics = [] if topics is EMPTY else topics
