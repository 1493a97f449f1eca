"""DeleteRecordsRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteRecordsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeleteRecordsPartition(Struct):
    __slots__ = ("partition_index", "offset")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.offset = offset


class DeleteRecordsTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DeleteRecordsPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class DeleteRecordsRequest(Message):
    __slots__ = ("topics", "timeout_ms")
    API_KEY: ClassVar[int | None] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":21,"type":"request","listeners":["broker"],"name":"DeleteRecordsRequest","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"Topics","type":"[]DeleteRecordsTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]DeleteRecordsPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"Offset","type":"int64","versions":"0+"}]}]},{"name":"TimeoutMs","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        topics: list[DeleteRecordsTopic] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
