"""AbortTransactionRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/AbortTransactionRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class AbortTransactionRecord(Message):
    __slots__ = ("reason",)
    API_KEY: ClassVar[int | None] = 25
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":25,"type":"metadata","name":"AbortTransactionRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Reason","type":"string","default":"null","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":0}]}'

    def __init__(
        self,
        *,
        reason: str | None = None,
    ) -> None:
        self.reason = reason
