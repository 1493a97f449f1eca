"""MetadataRequest, versions 0 to 13.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/MetadataRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class MetadataRequestTopic(Struct):
    __slots__ = ("topic_id", "name")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        name: str | None = "",
    ) -> None:
        self.topic_id = topic_id
        self.name = name


class MetadataRequest(Message):
    __slots__ = ("topics", "allow_auto_topic_creation", "include_cluster_authorized_operations", "include_topic_authorized_operations")
    API_KEY: ClassVar[int | None] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_MIN: ClassVar[int] = 9
    DEFINITION: ClassVar[str] = '{"apiKey":3,"type":"request","listeners":["broker"],"name":"MetadataRequest","validVersions":"0-13","flexibleVersions":"9+","fields":[{"name":"Topics","type":"[]MetadataRequestTopic","versions":"0+","nullableVersions":"1+","fields":[{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"Name","type":"string","versions":"0+","entityType":"topicName","nullableVersions":"10+"}]},{"name":"AllowAutoTopicCreation","type":"bool","versions":"4+","default":"true","ignorable":false},{"name":"IncludeClusterAuthorizedOperations","type":"bool","versions":"8-10"},{"name":"IncludeTopicAuthorizedOperations","type":"bool","versions":"8+"}]}'

    def __init__(
        self,
        *,
        topics: list[MetadataRequestTopic] | None = EMPTY,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations
