"""LegacyOffsetCommitValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/LegacyOffsetCommitValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class LegacyOffsetCommitValue(Message):
    __slots__ = ("offset", "metadata", "commit_timestamp")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-value","name":"LegacyOffsetCommitValue","validVersions":"0","flexibleVersions":"none","fields":[{"name":"offset","type":"int64","versions":"0"},{"name":"metadata","type":"string","versions":"0"},{"name":"commitTimestamp","type":"int64","versions":"0"}]}'

    def __init__(
        self,
        *,
        offset: int = 0,
        metadata: str = "",
        commit_timestamp: int = 0,
    ) -> None:
        self.offset = offset
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
