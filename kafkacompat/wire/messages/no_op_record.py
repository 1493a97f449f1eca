"""NoOpRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/NoOpRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class NoOpRecord(Message):
    __slots__ = ()
    API_KEY: ClassVar[int | None] = 20
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":20,"type":"metadata","name":"NoOpRecord","validVersions":"0","flexibleVersions":"0+","fields":[]}'
