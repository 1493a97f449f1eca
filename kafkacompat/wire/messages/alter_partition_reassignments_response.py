"""AlterPartitionReassignmentsResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterPartitionReassignmentsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ReassignablePartitionResponse(Struct):
    __slots__ = ("partition_index", "error_code", "error_message")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class ReassignableTopicResponse(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartitionResponse] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterPartitionReassignmentsResponse(Message):
    __slots__ = ("throttle_time_ms", "allow_replication_factor_change", "error_code", "error_message", "responses")
    API_KEY: ClassVar[int | None] = 45
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":45,"type":"response","name":"AlterPartitionReassignmentsResponse","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"AllowReplicationFactorChange","type":"bool","versions":"1+","default":"true","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"Responses","type":"[]ReassignableTopicResponse","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]ReassignablePartitionResponse","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[ReassignableTopicResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses
