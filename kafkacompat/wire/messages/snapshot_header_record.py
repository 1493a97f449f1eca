"""SnapshotHeaderRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/SnapshotHeaderRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class SnapshotHeaderRecord(Message):
    __slots__ = ("version", "last_contained_log_timestamp")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"type":"data","name":"SnapshotHeaderRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Version","type":"int16","versions":"0+"},{"name":"LastContainedLogTimestamp","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        version: int = 0,
        last_contained_log_timestamp: int = 0,
    ) -> None:
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp
