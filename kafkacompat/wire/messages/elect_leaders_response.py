"""ElectLeadersResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ElectLeadersResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionResult(Struct):
    __slots__ = ("partition_id", "error_code", "error_message")

    def __init__(
        self,
        *,
        partition_id: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message


class ReplicaElectionResult(Struct):
    __slots__ = ("topic", "partition_result")

    def __init__(
        self,
        *,
        topic: str = "",
        partition_result: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partition_result = [] if partition_result is EMPTY else partition_result


class ElectLeadersResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "replica_election_results")
    API_KEY: ClassVar[int | None] = 43
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":43,"type":"response","name":"ElectLeadersResponse","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"1+","ignorable":false},{"name":"ReplicaElectionResults","type":"[]ReplicaElectionResult","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName"},{"name":"PartitionResult","type":"[]PartitionResult","versions":"0+","fields":[{"name":"PartitionId","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.replica_election_results = [] if replica_election_results is EMPTY else replica_election_results
