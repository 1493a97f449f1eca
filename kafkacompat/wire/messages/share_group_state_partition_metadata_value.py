"""ShareGroupStatePartitionMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupStatePartitionMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitionsInfo(Struct):
    __slots__ = ("topic_id", "topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class TopicInfo(Struct):
    __slots__ = ("topic_id", "topic_name")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        topic_name: str = "",
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name


class ShareGroupStatePartitionMetadataValue(Message):
    __slots__ = ("initializing_topics", "initialized_topics", "deleting_topics")
    API_KEY: ClassVar[int | None] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":15,"type":"coordinator-value","name":"ShareGroupStatePartitionMetadataValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TopicPartitionsInfo","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"TopicName","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"TopicInfo","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"TopicName","type":"string","versions":"0+"}]}],"fields":[{"name":"InitializingTopics","versions":"0+","type":"[]TopicPartitionsInfo"},{"name":"InitializedTopics","versions":"0+","type":"[]TopicPartitionsInfo"},{"name":"DeletingTopics","versions":"0+","type":"[]TopicInfo"}]}'

    def __init__(
        self,
        *,
        initializing_topics: list[TopicPartitionsInfo] = EMPTY,
        initialized_topics: list[TopicPartitionsInfo] = EMPTY,
        deleting_topics: list[TopicInfo] = EMPTY,
    ) -> None:
        self.initializing_topics = [] if initializing_topics is EMPTY else initializing_topics
        self.initialized_topics = [] if initialized_topics is EMPTY else initialized_topics
        self.deleting_topics = [] if deleting_topics is EMPTY else deleting_topics
