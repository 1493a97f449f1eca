"""ListPartitionReassignmentsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListPartitionReassignmentsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ListPartitionReassignmentsTopics(Struct):
    __slots__ = ("name", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class ListPartitionReassignmentsRequest(Message):
    __slots__ = ("timeout_ms", "topics")
    API_KEY: ClassVar[int | None] = 46
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":46,"type":"request","listeners":["broker","controller"],"name":"ListPartitionReassignmentsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TimeoutMs","type":"int32","versions":"0+","default":"60000"},{"name":"Topics","type":"[]ListPartitionReassignmentsTopics","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"PartitionIndexes","type":"[]int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics
