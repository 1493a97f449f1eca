"""DescribeUserScramCredentialsRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeUserScramCredentialsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class UserName(Struct):
    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name


class DescribeUserScramCredentialsRequest(Message):
    __slots__ = ("users",)
    API_KEY: ClassVar[int | None] = 50
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":50,"type":"request","listeners":["broker","controller"],"name":"DescribeUserScramCredentialsRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Users","type":"[]UserName","versions":"0+","nullableVersions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        users: list[UserName] | None = EMPTY,
    ) -> None:
        self.users = [] if users is EMPTY else users
