"""DeleteTopicsResponse, versions 1 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteTopicsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeletableTopicResult(Struct):
    __slots__ = ("name", "topic_id", "error_code", "error_message")

    def __init__(
        self,
        *,
        name: str | None = "",
        topic_id: bytes = bytes(16),
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteTopicsResponse(Message):
    __slots__ = ("throttle_time_ms", "responses")
    API_KEY: ClassVar[int | None] = 20
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":20,"type":"response","name":"DeleteTopicsResponse","validVersions":"1-6","flexibleVersions":"4+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"Responses","type":"[]DeletableTopicResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","nullableVersions":"6+","mapKey":true,"entityType":"topicName"},{"name":"TopicId","type":"uuid","versions":"6+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"5+","nullableVersions":"5+","ignorable":true,"default":"null"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = [] if responses is EMPTY else responses
