"""OffsetFetchResponse, versions 1 to 10.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetFetchResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetFetchResponsePartition(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetFetchResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetFetchResponsePartitions(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopics(Struct):
    __slots__ = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[OffsetFetchResponsePartitions] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetFetchResponseGroup(Struct):
    __slots__ = ("group_id", "topics", "error_code")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] = EMPTY,
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code


class OffsetFetchResponse(Message):
    __slots__ = ("throttle_time_ms", "topics", "error_code", "groups")
    API_KEY: ClassVar[int | None] = 9
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":9,"type":"response","name":"OffsetFetchResponse","validVersions":"1-10","flexibleVersions":"6+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"3+","ignorable":true},{"name":"Topics","type":"[]OffsetFetchResponseTopic","versions":"0-7","fields":[{"name":"Name","type":"string","versions":"0-7","entityType":"topicName"},{"name":"Partitions","type":"[]OffsetFetchResponsePartition","versions":"0-7","fields":[{"name":"PartitionIndex","type":"int32","versions":"0-7"},{"name":"CommittedOffset","type":"int64","versions":"0-7"},{"name":"CommittedLeaderEpoch","type":"int32","versions":"5-7","default":"-1","ignorable":true},{"name":"Metadata","type":"string","versions":"0-7","nullableVersions":"0-7"},{"name":"ErrorCode","type":"int16","versions":"0-7"}]}]},{"name":"ErrorCode","type":"int16","versions":"2-7","default":"0","ignorable":true},{"name":"Groups","type":"[]OffsetFetchResponseGroup","versions":"8+","fields":[{"name":"GroupId","type":"string","versions":"8+","entityType":"groupId"},{"name":"Topics","type":"[]OffsetFetchResponseTopics","versions":"8+","fields":[{"name":"Name","type":"string","versions":"8-9","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"Partitions","type":"[]OffsetFetchResponsePartitions","versions":"8+","fields":[{"name":"PartitionIndex","type":"int32","versions":"8+"},{"name":"CommittedOffset","type":"int64","versions":"8+"},{"name":"CommittedLeaderEpoch","type":"int32","versions":"8+","default":"-1","ignorable":true},{"name":"Metadata","type":"string","versions":"8+","nullableVersions":"8+"},{"name":"ErrorCode","type":"int16","versions":"8+"}]}]},{"name":"ErrorCode","type":"int16","versions":"8+","default":"0"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] = EMPTY,
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups
