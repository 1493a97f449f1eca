"""RemoveDelegationTokenRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RemoveDelegationTokenRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RemoveDelegationTokenRecord(Message):
    __slots__ = ("token_id",)
    API_KEY: ClassVar[int | None] = 26
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":26,"type":"metadata","name":"RemoveDelegationTokenRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TokenId","type":"string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        token_id: str = "",
    ) -> None:
        self.token_id = token_id
