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
    DEFINITION: ClassVar[str] = "metadata/UserScramCredentialRecord.json"

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
