"""DescribeDelegationTokenRequest, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeDelegationTokenRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeDelegationTokenOwner(Struct):
    __slots__ = ("principal_type", "principal_name")

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class DescribeDelegationTokenRequest(Message):
    __slots__ = ("owners",)
    API_KEY: ClassVar[int | None] = 41
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":41,"type":"request","listeners":["broker","controller"],"name":"DescribeDelegationTokenRequest","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"Owners","type":"[]DescribeDelegationTokenOwner","versions":"0+","nullableVersions":"0+","fields":[{"name":"PrincipalType","type":"string","versions":"0+"},{"name":"PrincipalName","type":"string","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenOwner] | None = EMPTY,
    ) -> None:
        self.owners = [] if owners is EMPTY else owners
