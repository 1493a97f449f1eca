"""GroupMetadataKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/GroupMetadataKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class GroupMetadataKey(Message):
    __slots__ = ("group",)
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"coordinator-key","name":"GroupMetadataKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"group","type":"string","versions":"0"}]}'

    def __init__(
        self,
        *,
        group: str = "",
    ) -> None:
        self.group = group
