"""EndTransactionRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/EndTransactionRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EndTransactionRecord(Message):
    __slots__ = ()
    API_KEY: ClassVar[int | None] = 24
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":24,"type":"metadata","name":"EndTransactionRecord","validVersions":"0","flexibleVersions":"0+","fields":[]}'
