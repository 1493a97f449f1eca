"""ConsumerGroupRegularExpressionKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupRegularExpressionKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ConsumerGroupRegularExpressionKey(Message):
    __slots__ = ("group_id", "regular_expression")
    API_KEY: ClassVar[int | None] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":16,"type":"coordinator-key","name":"ConsumerGroupRegularExpressionKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"GroupId","type":"string","versions":"0"},{"name":"RegularExpression","type":"string","versions":"0"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        regular_expression: str = "",
    ) -> None:
        self.group_id = group_id
        self.regular_expression = regular_expression
