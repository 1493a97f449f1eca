"""ShareGroupTargetAssignmentMemberValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupTargetAssignmentMemberValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartition(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareGroupTargetAssignmentMemberValue(Message):
    __slots__ = ("topic_partitions",)
    API_KEY: ClassVar[int | None] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":13,"type":"coordinator-value","name":"ShareGroupTargetAssignmentMemberValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TopicPartitions","versions":"0+","type":"[]TopicPartition","fields":[{"name":"TopicId","versions":"0+","type":"uuid"},{"name":"Partitions","versions":"0+","type":"[]int32"}]}]}'

    def __init__(
        self,
        *,
        topic_partitions: list[TopicPartition] = EMPTY,
    ) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions
