"""ConsumerProtocolAssignment, versions 0 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ConsumerProtocolAssignment.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartition(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class ConsumerProtocolAssignment(Message):
    __slots__ = ("assigned_partitions", "user_data")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"type":"data","name":"ConsumerProtocolAssignment","validVersions":"0-3","flexibleVersions":"none","fields":[{"name":"AssignedPartitions","type":"[]TopicPartition","versions":"0+","fields":[{"name":"Topic","type":"string","mapKey":true,"versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"UserData","type":"bytes","versions":"0+","nullableVersions":"0+","default":"null","zeroCopy":true}]}'

    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartition] = EMPTY,
        user_data: bytes | None = None,
    ) -> None:
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.user_data = user_data
