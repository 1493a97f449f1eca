"""ElectLeadersRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ElectLeadersRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class ElectLeadersRequest(Message):
    __slots__ = ("election_type", "topic_partitions", "timeout_ms")
    API_KEY: ClassVar[int | None] = 43
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":43,"type":"request","listeners":["broker","controller"],"name":"ElectLeadersRequest","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"ElectionType","type":"int8","versions":"1+"},{"name":"TopicPartitions","type":"[]TopicPartitions","versions":"0+","nullableVersions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName","mapKey":true},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"TimeoutMs","type":"int32","versions":"0+","default":"60000"}]}'

    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | None = EMPTY,
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions
        self.timeout_ms = timeout_ms
