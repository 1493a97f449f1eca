"""RemoveUserScramCredentialRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RemoveUserScramCredentialRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RemoveUserScramCredentialRecord(Message):
    __slots__ = ("name", "mechanism")
    API_KEY: ClassVar[int | None] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":22,"type":"metadata","name":"RemoveUserScramCredentialRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Mechanism","type":"int8","versions":"0+"}]}'

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism
