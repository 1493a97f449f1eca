"""CreatePartitionsRequest, versions 0 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreatePartitionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class CreatePartitionsAssignment(Struct):
    __slots__ = ("broker_ids",)

    def __init__(
        self,
        *,
        broker_ids: list[int] = EMPTY,
    ) -> None:
        self.broker_ids = [] if broker_ids is EMPTY else broker_ids


class CreatePartitionsTopic(Struct):
    __slots__ = ("name", "count", "assignments")

    def __init__(
        self,
        *,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | None = EMPTY,
    ) -> None:
        self.name = name
        self.count = count
        self.assignments = [] if assignments is EMPTY else assignments


class CreatePartitionsRequest(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")
    API_KEY: ClassVar[int | None] = 37
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":37,"type":"request","listeners":["broker","controller"],"name":"CreatePartitionsRequest","validVersions":"0-3","flexibleVersions":"2+","fields":[{"name":"Topics","type":"[]CreatePartitionsTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Count","type":"int32","versions":"0+"},{"name":"Assignments","type":"[]CreatePartitionsAssignment","versions":"0+","nullableVersions":"0+","fields":[{"name":"BrokerIds","type":"[]int32","versions":"0+","entityType":"brokerId"}]}]},{"name":"TimeoutMs","type":"int32","versions":"0+"},{"name":"ValidateOnly","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        topics: list[CreatePartitionsTopic] = EMPTY,
        timeout_ms: int = 0,
        validate_only: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only
