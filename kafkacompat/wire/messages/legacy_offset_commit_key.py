"""LegacyOffsetCommitKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/LegacyOffsetCommitKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class LegacyOffsetCommitKey(Message):
    __slots__ = ("group", "topic", "partition")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-key","name":"LegacyOffsetCommitKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"group","type":"string","versions":"0"},{"name":"topic","type":"string","versions":"0"},{"name":"partition","type":"int32","versions":"0"}]}'

    def __init__(
        self,
        *,
        group: str = "",
        topic: str = "",
        partition: int = 0,
    ) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
