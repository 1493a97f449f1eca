"""BeginTransactionRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/BeginTransactionRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class BeginTransactionRecord(Message):
    __slots__ = ("name",)
    API_KEY: ClassVar[int | None] = 23
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":23,"type":"metadata","name":"BeginTransactionRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Name","type":"string","default":"null","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":0}]}'

    def __init__(
        self,
        *,
        name: str | None = None,
    ) -> None:
        self.name = name
