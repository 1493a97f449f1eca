"""WriteTxnMarkersRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/WriteTxnMarkersRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class WritableTxnMarkerTopic(Struct):
    __slots__ = ("name", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class WritableTxnMarker(Struct):
    __slots__ = ("producer_id", "producer_epoch", "transaction_result", "topics", "coordinator_epoch", "transaction_version")

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] = EMPTY,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics = [] if topics is EMPTY else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version


class WriteTxnMarkersRequest(Message):
    __slots__ = ("markers",)
    API_KEY: ClassVar[int | None] = 27
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":27,"type":"request","listeners":["broker"],"name":"WriteTxnMarkersRequest","validVersions":"1-2","flexibleVersions":"1+","fields":[{"name":"Markers","type":"[]WritableTxnMarker","versions":"0+","fields":[{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"ProducerEpoch","type":"int16","versions":"0+"},{"name":"TransactionResult","type":"bool","versions":"0+"},{"name":"Topics","type":"[]WritableTxnMarkerTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"PartitionIndexes","type":"[]int32","versions":"0+"}]},{"name":"CoordinatorEpoch","type":"int32","versions":"0+"},{"name":"TransactionVersion","type":"int8","versions":"2+","ignorable":true,"default":"0"}]}]}'

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarker] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
