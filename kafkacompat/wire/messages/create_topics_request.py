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
    DEFINITION: ClassVar[str] = "wire/CreateTopicsRequest.json"

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
