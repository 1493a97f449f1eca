"""RemoveTopicRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RemoveTopicRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RemoveTopicRecord(Message):
    __slots__ = ("topic_id",)
    API_KEY: ClassVar[int | None] = 9
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":9,"type":"metadata","name":"RemoveTopicRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"}]}'

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
    ) -> None:
        self.topic_id = topic_id
