"""ConsumerGroupRegularExpressionValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupRegularExpressionValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class ConsumerGroupRegularExpressionValue(Message):
    __slots__ = ("topics", "version", "timestamp")
    API_KEY: ClassVar[int | None] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":16,"type":"coordinator-value","name":"ConsumerGroupRegularExpressionValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Topics","versions":"0+","type":"[]string"},{"name":"Version","versions":"0+","type":"int64"},{"name":"Timestamp","versions":"0+","type":"int64"}]}'

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        version: int = 0,
        timestamp: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.version = version
        self.timestamp = timestamp
