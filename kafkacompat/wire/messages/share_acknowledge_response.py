"""ShareAcknowledgeResponse, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ShareAcknowledgeResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class LeaderIdAndEpoch(Struct):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(
        self,
        *,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "error_message", "current_leader")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader


class ShareAcknowledgeTopicResponse(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


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


class ShareAcknowledgeResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "acquisition_lock_timeout_ms", "responses", "node_endpoints")
    API_KEY: ClassVar[int | None] = 79
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":79,"type":"response","name":"ShareAcknowledgeResponse","validVersions":"1-2","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"AcquisitionLockTimeoutMs","type":"int32","versions":"2+","ignorable":true},{"name":"Responses","type":"[]ShareAcknowledgeTopicResponse","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+","mapKey":true},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"CurrentLeader","type":"LeaderIdAndEpoch","versions":"0+","fields":[{"name":"LeaderId","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"}]}]}]},{"name":"NodeEndpoints","type":"[]NodeEndpoint","versions":"0+","fields":[{"name":"NodeId","type":"int32","versions":"0+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"int32","versions":"0+"},{"name":"Rack","type":"string","versions":"0+","nullableVersions":"0+","default":"null"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareAcknowledgeTopicResponse] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses = [] if responses is EMPTY else responses
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
