"""ListConfigResourcesRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListConfigResourcesRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class ListConfigResourcesRequest(Message):
    __slots__ = ("resource_types",)
    API_KEY: ClassVar[int | None] = 74
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":74,"type":"request","listeners":["broker"],"name":"ListConfigResourcesRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ResourceTypes","type":"[]int8","versions":"1+"}]}'

    def __init__(
        self,
        *,
        resource_types: list[int] = EMPTY,
    ) -> None:
        self.resource_types = [] if resource_types is EMPTY else resource_types
