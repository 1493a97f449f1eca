"""UserScramCredentialRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/UserScramCredentialRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class UserScramCredentialRecord(Message):
    __slots__ = ("name", "mechanism", "salt", "stored_key", "server_key", "iterations")
    API_KEY: ClassVar[int | None] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":11,"type":"metadata","name":"UserScramCredentialRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Mechanism","type":"int8","versions":"0+"},{"name":"Salt","type":"bytes","versions":"0+"},{"name":"StoredKey","type":"bytes","versions":"0+"},{"name":"ServerKey","type":"bytes","versions":"0+"},{"name":"Iterations","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        salt: bytes = b"",
        stored_key: bytes = b"",
        server_key: bytes = b"",
        iterations: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations
