"""CreateTopicsRequest, versions 2 to 7.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateTopicsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class CreatableReplicaAssignment(Struct):
    __slots__ = ("partition_index", "broker_ids")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        broker_ids: list[int] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.broker_ids = [] if broker_ids is EMPTY else broker_ids


class CreatableTopicConfig(Struct):
    __slots__ = ("name", "value")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class CreatableTopic(Struct):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")

    def __init__(
        self,
        *,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: list[CreatableReplicaAssignment] = EMPTY,
        configs: list[CreatableTopicConfig] = EMPTY,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments = [] if assignments is EMPTY else assignments
        self.configs = [] if configs is EMPTY else configs


class CreateTopicsRequest(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")
    API_KEY: ClassVar[int | None] = 19
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 7
    FLEXIBLE_MIN: ClassVar[int] = 5
    DEFINITION: ClassVar[str] = '{"apiKey":19,"type":"request","listeners":["broker","controller"],"name":"CreateTopicsRequest","validVersions":"2-7","flexibleVersions":"5+","fields":[{"name":"Topics","type":"[]CreatableTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"NumPartitions","type":"int32","versions":"0+"},{"name":"ReplicationFactor","type":"int16","versions":"0+"},{"name":"Assignments","type":"[]CreatableReplicaAssignment","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+","mapKey":true},{"name":"BrokerIds","type":"[]int32","versions":"0+","entityType":"brokerId"}]},{"name":"Configs","type":"[]CreatableTopicConfig","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Value","type":"string","versions":"0+","nullableVersions":"0+"}]}]},{"name":"timeoutMs","type":"int32","versions":"0+","default":"60000"},{"name":"validateOnly","type":"bool","versions":"1+","default":"false","ignorable":false}]}'

    def __init__(
        self,
        *,
        topics: list[CreatableTopic] = EMPTY,
        timeout_ms: int = 60000,
        validate_only: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only
