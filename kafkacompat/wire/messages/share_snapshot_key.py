"""ShareSnapshotKey, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/share/ShareSnapshotKey.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ShareSnapshotKey(Message):
    __slots__ = ("group_id", "topic_id", "partition")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-key","name":"ShareSnapshotKey","validVersions":"0","flexibleVersions":"none","fields":[{"name":"GroupId","type":"string","versions":"0"},{"name":"TopicId","type":"uuid","versions":"0"},{"name":"Partition","type":"int32","versions":"0"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topic_id: bytes = bytes(16),
        partition: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
