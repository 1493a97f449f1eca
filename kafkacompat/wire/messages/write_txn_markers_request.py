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
    DEFINITION: ClassVar[str] = "wire/WriteTxnMarkersRequest.json"

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarker] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
