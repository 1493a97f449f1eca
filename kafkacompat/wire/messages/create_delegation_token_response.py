"""CreateDelegationTokenResponse, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateDelegationTokenResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class CreateDelegationTokenResponse(Message):
    __slots__ = ("error_code", "principal_type", "principal_name", "token_requester_principal_type", "token_requester_principal_name", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "token_id", "hmac", "throttle_time_ms")
    API_KEY: ClassVar[int | None] = 38
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":38,"type":"response","name":"CreateDelegationTokenResponse","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"PrincipalType","type":"string","versions":"0+"},{"name":"PrincipalName","type":"string","versions":"0+"},{"name":"TokenRequesterPrincipalType","type":"string","versions":"3+"},{"name":"TokenRequesterPrincipalName","type":"string","versions":"3+"},{"name":"IssueTimestampMs","type":"int64","versions":"0+"},{"name":"ExpiryTimestampMs","type":"int64","versions":"0+"},{"name":"MaxTimestampMs","type":"int64","versions":"0+"},{"name":"TokenId","type":"string","versions":"0+"},{"name":"Hmac","type":"bytes","versions":"0+"},{"name":"ThrottleTimeMs","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp_ms: int = 0,
        expiry_timestamp_ms: int = 0,
        max_timestamp_ms: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp_ms = issue_timestamp_ms
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.token_id = token_id
        self.hmac = hmac
        self.throttle_time_ms = throttle_time_ms
