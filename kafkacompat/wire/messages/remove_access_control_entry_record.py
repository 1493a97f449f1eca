"""RemoveAccessControlEntryRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RemoveAccessControlEntryRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RemoveAccessControlEntryRecord(Message):
    __slots__ = ("id",)
    API_KEY: ClassVar[int | None] = 19
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":19,"type":"metadata","name":"RemoveAccessControlEntryRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Id","type":"uuid","versions":"0+"}]}'

    def __init__(
        self,
        *,
        id: bytes = bytes(16),
    ) -> None:
        self.id = id
