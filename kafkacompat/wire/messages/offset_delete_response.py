"""OffsetDeleteResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetDeleteResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetDeleteResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteResponse(Message):
    __slots__ = ("error_code", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 47
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = "wire/OffsetDeleteResponse.json"

    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
