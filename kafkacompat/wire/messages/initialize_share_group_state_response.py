"""InitializeShareGroupStateResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/InitializeShareGroupStateResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message")

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class InitializeStateResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class InitializeShareGroupStateResponse(Message):
    __slots__ = ("results",)
    API_KEY: ClassVar[int | None] = 83
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":83,"type":"response","name":"InitializeShareGroupStateResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Results","type":"[]InitializeStateResult","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]PartitionResult","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"}]}]}]}'

    def __init__(
        self,
        *,
        results: list[InitializeStateResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
