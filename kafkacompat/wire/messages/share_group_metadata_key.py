"""ShareGroupMetadataKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupMetadataKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ShareGroupMetadataKey(Message):
    __slots__ = ("group_id",)
    API_KEY: ClassVar[int | None] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":11,"type":"coordinator-key","name":"ShareGroupMetadataKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"GroupId","type":"string","versions":"0"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
    ) -> None:
        self.group_id = group_id
