"""TopicRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/TopicRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class TopicRecord(Message):
    __slots__ = ("name", "topic_id")
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"metadata","name":"TopicRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"TopicId","type":"uuid","versions":"0+"}]}'

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
