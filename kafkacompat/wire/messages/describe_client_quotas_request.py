"""DescribeClientQuotasRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeClientQuotasRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ComponentData(Struct):
    __slots__ = ("entity_type", "match_type", "match")

    def __init__(
        self,
        *,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match


class DescribeClientQuotasRequest(Message):
    __slots__ = ("components", "strict")
    API_KEY: ClassVar[int | None] = 48
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":48,"type":"request","listeners":["broker"],"name":"DescribeClientQuotasRequest","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"Components","type":"[]ComponentData","versions":"0+","fields":[{"name":"EntityType","type":"string","versions":"0+"},{"name":"MatchType","type":"int8","versions":"0+"},{"name":"Match","type":"string","versions":"0+","nullableVersions":"0+"}]},{"name":"Strict","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        components: list[ComponentData] = EMPTY,
        strict: bool = False,
    ) -> None:
        self.components = [] if components is EMPTY else components
        self.strict = strict
