"""ClearElrRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/ClearElrRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ClearElrRecord(Message):
    __slots__ = ("topic_name",)
    API_KEY: ClassVar[int | None] = 28
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":28,"type":"metadata","name":"ClearElrRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"}]}'

    def __init__(
        self,
        *,
        topic_name: str = "",
    ) -> None:
        self.topic_name = topic_name
