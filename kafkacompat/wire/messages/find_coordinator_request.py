"""FindCoordinatorRequest, versions 0 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FindCoordinatorRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class FindCoordinatorRequest(Message):
    __slots__ = ("key", "key_type", "coordinator_keys")
    API_KEY: ClassVar[int | None] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":10,"type":"request","listeners":["broker"],"name":"FindCoordinatorRequest","validVersions":"0-6","flexibleVersions":"3+","fields":[{"name":"Key","type":"string","versions":"0-3"},{"name":"KeyType","type":"int8","versions":"1+","default":"0","ignorable":false},{"name":"CoordinatorKeys","type":"[]string","versions":"4+"}]}'

    def __init__(
        self,
        *,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] = EMPTY,
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys = [] if coordinator_keys is EMPTY else coordinator_keys
