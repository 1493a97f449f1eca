"""CreateDelegationTokenRequest, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateDelegationTokenRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class CreatableRenewers(Struct):
    __slots__ = ("principal_type", "principal_name")

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class CreateDelegationTokenRequest(Message):
    __slots__ = ("owner_principal_type", "owner_principal_name", "renewers", "max_lifetime_ms")
    API_KEY: ClassVar[int | None] = 38
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":38,"type":"request","listeners":["broker","controller"],"name":"CreateDelegationTokenRequest","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"OwnerPrincipalType","type":"string","versions":"3+","nullableVersions":"3+"},{"name":"OwnerPrincipalName","type":"string","versions":"3+","nullableVersions":"3+"},{"name":"Renewers","type":"[]CreatableRenewers","versions":"0+","fields":[{"name":"PrincipalType","type":"string","versions":"0+"},{"name":"PrincipalName","type":"string","versions":"0+"}]},{"name":"MaxLifetimeMs","type":"int64","versions":"0+"}]}'

    def __init__(
        self,
        *,
        owner_principal_type: str | None = "",
        owner_principal_name: str | None = "",
        renewers: list[CreatableRenewers] = EMPTY,
        max_lifetime_ms: int = 0,
    ) -> None:
        self.owner_principal_type = owner_principal_type
        self.owner_principal_name = owner_principal_name
        self.renewers = [] if renewers is EMPTY else renewers
        self.max_lifetime_ms = max_lifetime_ms
