"""OffsetCommitValue, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/group/OffsetCommitValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class OffsetCommitValue(Message):
    __slots__ = ("offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id")
    API_KEY: ClassVar[int | None] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":1,"type":"coordinator-value","name":"OffsetCommitValue","validVersions":"0-4","flexibleVersions":"4+","fields":[{"name":"offset","type":"int64","versions":"0+"},{"name":"leaderEpoch","type":"int32","versions":"3+","default":-1,"ignorable":true},{"name":"metadata","type":"string","versions":"0+"},{"name":"commitTimestamp","type":"int64","versions":"0+"},{"name":"expireTimestamp","type":"int64","versions":"1","default":-1,"ignorable":true},{"name":"topicId","type":"uuid","versions":"4+","taggedVersions":"4+","tag":0,"ignorable":true}]}'

    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: bytes = bytes(16),
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id
