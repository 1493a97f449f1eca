"""DeleteTopicsRequest, versions 1 to 6.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteTopicsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DeleteTopicState(Struct):
    __slots__ = ("name", "topic_id")

    def __init__(
        self,
        *,
        name: str | None = None,
        topic_id: bytes = bytes(16),
    ) -> None:
        self.name = name
        self.topic_id = topic_id


class DeleteTopicsRequest(Message):
    __slots__ = ("topics", "topic_names", "timeout_ms")
    API_KEY: ClassVar[int | None] = 20
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":20,"type":"request","listeners":["broker","controller"],"name":"DeleteTopicsRequest","validVersions":"1-6","flexibleVersions":"4+","fields":[{"name":"Topics","type":"[]DeleteTopicState","versions":"6+","fields":[{"name":"Name","type":"string","versions":"6+","nullableVersions":"6+","default":"null","entityType":"topicName"},{"name":"TopicId","type":"uuid","versions":"6+"}]},{"name":"TopicNames","type":"[]string","versions":"0-5","entityType":"topicName","ignorable":true},{"name":"TimeoutMs","type":"int32","versions":"0+"}]}'

    def __init__(
        self,
        *,
        topics: list[DeleteTopicState] = EMPTY,
        topic_names: list[str] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.topic_names = [] if topic_names is EMPTY else topic_names
        self.timeout_ms = timeout_ms
