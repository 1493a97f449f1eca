"""ConsumerProtocolSubscription, versions 0 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ConsumerProtocolSubscription.json."""

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


class ConsumerProtocolSubscription(Message):
    __slots__ = ("topics", "user_data", "owned_partitions", "generation_id", "rack_id")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"type":"data","name":"ConsumerProtocolSubscription","validVersions":"0-3","flexibleVersions":"none","fields":[{"name":"Topics","type":"[]string","versions":"0+"},{"name":"UserData","type":"bytes","versions":"0+","nullableVersions":"0+","default":"null","zeroCopy":true},{"name":"OwnedPartitions","type":"[]TopicPartition","versions":"1+","ignorable":true,"fields":[{"name":"Topic","type":"string","mapKey":true,"versions":"1+","entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"1+"}]},{"name":"GenerationId","type":"int32","versions":"2+","default":"-1","ignorable":true},{"name":"RackId","type":"string","versions":"3+","nullableVersions":"3+","default":"null","ignorable":true}]}'

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        user_data: bytes | None = None,
        owned_partitions: list[TopicPartition] = EMPTY,
        generation_id: int = -1,
        rack_id: str | None = None,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.user_data = user_data
        self.owned_partitions = [] if owned_partitions is EMPTY else owned_partitions
        self.generation_id = generation_id
        self.rack_id = rack_id
