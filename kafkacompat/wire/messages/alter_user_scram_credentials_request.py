"""AlterUserScramCredentialsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterUserScramCredentialsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ScramCredentialDeletion(Struct):
    __slots__ = ("name", "mechanism")

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism


class ScramCredentialUpsertion(Struct):
    __slots__ = ("name", "mechanism", "iterations", "salt", "salted_password")

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password


class AlterUserScramCredentialsRequest(Message):
    __slots__ = ("deletions", "upsertions")
    API_KEY: ClassVar[int | None] = 51
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":51,"type":"request","listeners":["broker","controller"],"name":"AlterUserScramCredentialsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Deletions","type":"[]ScramCredentialDeletion","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Mechanism","type":"int8","versions":"0+"}]},{"name":"Upsertions","type":"[]ScramCredentialUpsertion","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Mechanism","type":"int8","versions":"0+"},{"name":"Iterations","type":"int32","versions":"0+"},{"name":"Salt","type":"bytes","versions":"0+"},{"name":"SaltedPassword","type":"bytes","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        deletions: list[ScramCredentialDeletion] = EMPTY,
        upsertions: list[ScramCredentialUpsertion] = EMPTY,
    ) -> None:
        self.deletions = [] if deletions is EMPTY else deletions
        self.upsertions = [] if upsertions is EMPTY else upsertions
