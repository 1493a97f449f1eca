"""ReadShareGroupStateResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ReadShareGroupStateResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message", "state_epoch", "start_offset", "state_batches")

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches = [] if state_batches is EMPTY else state_batches


class ReadStateResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ReadShareGroupStateResponse(Message):
    __slots__ = ("results",)
    API_KEY: ClassVar[int | None] = 84
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":84,"type":"response","name":"ReadShareGroupStateResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Results","type":"[]ReadStateResult","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionResult","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"StateEpoch","type":"int32","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"},{"name":"StateBatches","type":"[]StateBatch","versions":"0+","fields":[{"name":"FirstOffset","type":"int64","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"DeliveryState","type":"int8","versions":"0+"},{"name":"DeliveryCount","type":"int16","versions":"0+"}]}]}]}]}'

    def __init__(
        self,
        *,
        results: list[ReadStateResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
