"""ControlRecordTypeSchema, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ControlRecordTypeSchema.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ControlRecordTypeSchema(Message):
    __slots__ = ("type",)
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"type":"data","name":"ControlRecordTypeSchema","validVersions":"0","flexibleVersions":"none","fields":[{"name":"Type","type":"int16","versions":"0+"}]}'

    def __init__(
        self,
        *,
        type: int = 0,
    ) -> None:
        self.type = type
