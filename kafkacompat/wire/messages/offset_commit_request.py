"""OffsetCommitRequest, versions 2 to 10.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetCommitRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetCommitRequestPartition(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class OffsetCommitRequestTopic(Struct):
    __slots__ = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[OffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetCommitRequest(Message):
    __slots__ = ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id", "retention_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 8
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_MIN: ClassVar[int] = 8
    DEFINITION: ClassVar[str] = '{"apiKey":8,"type":"request","listeners":["broker"],"name":"OffsetCommitRequest","validVersions":"2-10","flexibleVersions":"8+","fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GenerationIdOrMemberEpoch","type":"int32","versions":"1+","default":"-1","ignorable":true},{"name":"MemberId","type":"string","versions":"1+","ignorable":true},{"name":"GroupInstanceId","type":"string","versions":"7+","nullableVersions":"7+","default":"null"},{"name":"RetentionTimeMs","type":"int64","versions":"2-4","default":"-1","ignorable":true},{"name":"Topics","type":"[]OffsetCommitRequestTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0-9","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"Partitions","type":"[]OffsetCommitRequestPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"CommittedOffset","type":"int64","versions":"0+"},{"name":"CommittedLeaderEpoch","type":"int32","versions":"6+","default":"-1","ignorable":true},{"name":"CommittedMetadata","type":"string","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topics = [] if topics is EMPTY else topics
