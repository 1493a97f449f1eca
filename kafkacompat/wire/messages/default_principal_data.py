"""DefaultPrincipalData, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DefaultPrincipalData.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class DefaultPrincipalData(Message):
    __slots__ = ("type", "name", "token_authenticated")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"type":"data","name":"DefaultPrincipalData","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Type","type":"string","versions":"0+"},{"name":"Name","type":"string","versions":"0+"},{"name":"TokenAuthenticated","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        type: str = "",
        name: str = "",
        token_authenticated: bool = False,
    ) -> None:
        self.type = type
        self.name = name
        self.token_authenticated = token_authenticated
