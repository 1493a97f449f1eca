"""ProduceResponse, versions 3 to 13.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ProduceResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class BatchIndexAndErrorMessage(Struct):
    __slots__ = ("batch_index", "batch_index_error_message")

    def __init__(
        self,
        *,
        batch_index: int = 0,
        batch_index_error_message: str | None = None,
    ) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


class LeaderIdAndEpoch(Struct):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionProduceResponse(Struct):
    __slots__ = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset", "record_errors", "error_message", "current_leader")

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] = EMPTY,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = [] if record_errors is EMPTY else record_errors
        self.error_message = error_message
        self.current_leader = current_leader


class TopicProduceResponse(Struct):
    __slots__ = ("name", "topic_id", "partition_responses")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partition_responses: list[PartitionProduceResponse] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses = [] if partition_responses is EMPTY else partition_responses


class NodeEndpoint(Struct):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class ProduceResponse(Message):
    __slots__ = ("responses", "throttle_time_ms", "node_endpoints")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 3
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_MIN: ClassVar[int] = 9
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"response","name":"ProduceResponse","validVersions":"3-13","flexibleVersions":"9+","fields":[{"name":"Responses","type":"[]TopicProduceResponse","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0-12","entityType":"topicName","mapKey":true,"ignorable":true},{"name":"TopicId","type":"uuid","versions":"13+","mapKey":true,"ignorable":true},{"name":"PartitionResponses","type":"[]PartitionProduceResponse","versions":"0+","fields":[{"name":"Index","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"BaseOffset","type":"int64","versions":"0+"},{"name":"LogAppendTimeMs","type":"int64","versions":"2+","default":"-1","ignorable":true},{"name":"LogStartOffset","type":"int64","versions":"5+","default":"-1","ignorable":true},{"name":"RecordErrors","type":"[]BatchIndexAndErrorMessage","versions":"8+","ignorable":true,"fields":[{"name":"BatchIndex","type":"int32","versions":"8+"},{"name":"BatchIndexErrorMessage","type":"string","default":"null","versions":"8+","nullableVersions":"8+"}]},{"name":"ErrorMessage","type":"string","default":"null","versions":"8+","nullableVersions":"8+","ignorable":true},{"name":"CurrentLeader","type":"LeaderIdAndEpoch","versions":"10+","taggedVersions":"10+","tag":0,"fields":[{"name":"LeaderId","type":"int32","versions":"10+","default":"-1","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"10+","default":"-1"}]}]}]},{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true,"default":"0"},{"name":"NodeEndpoints","type":"[]NodeEndpoint","versions":"10+","taggedVersions":"10+","tag":0,"fields":[{"name":"NodeId","type":"int32","versions":"10+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"10+"},{"name":"Port","type":"int32","versions":"10+"},{"name":"Rack","type":"string","versions":"10+","nullableVersions":"10+","default":"null"}]}]}'

    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] = EMPTY,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.responses = [] if responses is EMPTY else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
