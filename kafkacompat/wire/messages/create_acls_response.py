"""CreateAclsResponse, versions 1 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateAclsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AclCreationResult(Struct):
    __slots__ = ("error_code", "error_message")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message


class CreateAclsResponse(Message):
    __slots__ = ("throttle_time_ms", "results")
    API_KEY: ClassVar[int | None] = 30
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":30,"type":"response","name":"CreateAclsResponse","validVersions":"1-3","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Results","type":"[]AclCreationResult","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","nullableVersions":"0+","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AclCreationResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
