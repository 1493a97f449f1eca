"""ProduceRequest, versions 3 to 13.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ProduceRequest.json."""

from __future__ import annotations

from typing import Any, ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionProduceData(Struct):
    __slots__ = ("index", "records")

    def __init__(
        self,
        *,
        index: int = 0,
        records: Any = None,
    ) -> None:
        self.index = index
        self.records = records


class TopicProduceData(Struct):
    __slots__ = ("name", "topic_id", "partition_data")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partition_data: list[PartitionProduceData] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data = [] if partition_data is EMPTY else partition_data


class ProduceRequest(Message):
    __slots__ = ("transactional_id", "acks", "timeout_ms", "topic_data")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 3
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_MIN: ClassVar[int] = 9
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"request","listeners":["broker"],"name":"ProduceRequest","validVersions":"3-13","flexibleVersions":"9+","fields":[{"name":"TransactionalId","type":"string","versions":"3+","nullableVersions":"3+","default":"null","entityType":"transactionalId"},{"name":"Acks","type":"int16","versions":"0+"},{"name":"TimeoutMs","type":"int32","versions":"0+"},{"name":"TopicData","type":"[]TopicProduceData","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0-12","entityType":"topicName","mapKey":true,"ignorable":true},{"name":"TopicId","type":"uuid","versions":"13+","mapKey":true,"ignorable":true},{"name":"PartitionData","type":"[]PartitionProduceData","versions":"0+","fields":[{"name":"Index","type":"int32","versions":"0+"},{"name":"Records","type":"records","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = [] if topic_data is EMPTY else topic_data
