"""OffsetFetchRequest, versions 1 to 10.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetFetchRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetFetchRequestTopic(Struct):
    __slots__ = ("name", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class OffsetFetchRequestTopics(Struct):
    __slots__ = ("name", "topic_id", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class OffsetFetchRequestGroup(Struct):
    __slots__ = ("group_id", "member_id", "member_epoch", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics = [] if topics is EMPTY else topics


class OffsetFetchRequest(Message):
    __slots__ = ("group_id", "topics", "groups", "require_stable")
    API_KEY: ClassVar[int | None] = 9
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = '{"apiKey":9,"type":"request","listeners":["broker"],"name":"OffsetFetchRequest","validVersions":"1-10","flexibleVersions":"6+","fields":[{"name":"GroupId","type":"string","versions":"0-7","entityType":"groupId"},{"name":"Topics","type":"[]OffsetFetchRequestTopic","versions":"0-7","nullableVersions":"2-7","fields":[{"name":"Name","type":"string","versions":"0-7","entityType":"topicName"},{"name":"PartitionIndexes","type":"[]int32","versions":"0-7"}]},{"name":"Groups","type":"[]OffsetFetchRequestGroup","versions":"8+","fields":[{"name":"GroupId","type":"string","versions":"8+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"9+","nullableVersions":"9+","default":"null","ignorable":true},{"name":"MemberEpoch","type":"int32","versions":"9+","default":"-1","ignorable":true},{"name":"Topics","type":"[]OffsetFetchRequestTopics","versions":"8+","nullableVersions":"8+","fields":[{"name":"Name","type":"string","versions":"8-9","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"PartitionIndexes","type":"[]int32","versions":"8+"}]}]},{"name":"RequireStable","type":"bool","versions":"7+","default":"false"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = EMPTY,
        groups: list[OffsetFetchRequestGroup] = EMPTY,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.groups = [] if groups is EMPTY else groups
        self.require_stable = require_stable
