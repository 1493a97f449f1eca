"""UnregisterControllerRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/UnregisterControllerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UnregisterControllerRecord(Message):
    __slots__ = ("controller_id",)
    API_KEY: ClassVar[int | None] = 29
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":29,"type":"metadata","name":"UnregisterControllerRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ControllerId","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        controller_id: int = 0,
    ) -> None:
        self.controller_id = controller_id
