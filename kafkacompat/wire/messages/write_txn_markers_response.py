"""WriteTxnMarkersResponse, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/WriteTxnMarkersResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class WritableTxnMarkerPartitionResult(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class WritableTxnMarkerTopicResult(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class WritableTxnMarkerResult(Struct):
    __slots__ = ("producer_id", "topics")

    def __init__(
        self,
        *,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] = EMPTY,
    ) -> None:
        self.producer_id = producer_id
        self.topics = [] if topics is EMPTY else topics


class WriteTxnMarkersResponse(Message):
    __slots__ = ("markers",)
    API_KEY: ClassVar[int | None] = 27
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":27,"type":"response","name":"WriteTxnMarkersResponse","validVersions":"1-2","flexibleVersions":"1+","fields":[{"name":"Markers","type":"[]WritableTxnMarkerResult","versions":"0+","fields":[{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"Topics","type":"[]WritableTxnMarkerTopicResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]WritableTxnMarkerPartitionResult","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"}]}]}]}]}'

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarkerResult] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
