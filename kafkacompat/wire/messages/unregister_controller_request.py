"""UnregisterControllerRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/UnregisterControllerRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UnregisterControllerRequest(Message):
    __slots__ = ("controller_id",)
    API_KEY: ClassVar[int | None] = 94
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":94,"type":"request","listeners":["broker","controller"],"name":"UnregisterControllerRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ControllerId","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        controller_id: int = 0,
    ) -> None:
        self.controller_id = controller_id
