"""DescribeDelegationTokenResponse, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeDelegationTokenResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribedDelegationTokenRenewer(Struct):
    __slots__ = ("principal_type", "principal_name")

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class DescribedDelegationToken(Struct):
    __slots__ = ("principal_type", "principal_name", "token_requester_principal_type", "token_requester_principal_name", "issue_timestamp", "expiry_timestamp", "max_timestamp", "token_id", "hmac", "renewers")

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp: int = 0,
        expiry_timestamp: int = 0,
        max_timestamp: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        renewers: list[DescribedDelegationTokenRenewer] = EMPTY,
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp = issue_timestamp
        self.expiry_timestamp = expiry_timestamp
        self.max_timestamp = max_timestamp
        self.token_id = token_id
        self.hmac = hmac
        self.renewers = [] if renewers is EMPTY else renewers


class DescribeDelegationTokenResponse(Message):
    __slots__ = ("error_code", "tokens", "throttle_time_ms")
    API_KEY: ClassVar[int | None] = 41
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":41,"type":"response","name":"DescribeDelegationTokenResponse","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Tokens","type":"[]DescribedDelegationToken","versions":"0+","fields":[{"name":"PrincipalType","type":"string","versions":"0+"},{"name":"PrincipalName","type":"string","versions":"0+"},{"name":"TokenRequesterPrincipalType","type":"string","versions":"3+"},{"name":"TokenRequesterPrincipalName","type":"string","versions":"3+"},{"name":"IssueTimestamp","type":"int64","versions":"0+"},{"name":"ExpiryTimestamp","type":"int64","versions":"0+"},{"name":"MaxTimestamp","type":"int64","versions":"0+"},{"name":"TokenId","type":"string","versions":"0+"},{"name":"Hmac","type":"bytes","versions":"0+"},{"name":"Renewers","type":"[]DescribedDelegationTokenRenewer","versions":"0+","fields":[{"name":"PrincipalType","type":"string","versions":"0+"},{"name":"PrincipalName","type":"string","versions":"0+"}]}]},{"name":"ThrottleTimeMs","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        tokens: list[DescribedDelegationToken] = EMPTY,
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.tokens = [] if tokens is EMPTY else tokens
        self.throttle_time_ms = throttle_time_ms
