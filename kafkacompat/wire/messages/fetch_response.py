"""FetchResponse, versions 4 to 18.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FetchResponse.json."""

from __future__ import annotations

from typing import Any, ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class EpochEndOffset(Struct):
    __slots__ = ("epoch", "end_offset")

    def __init__(
        self,
        *,
        epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.epoch = epoch
        self.end_offset = end_offset


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


class SnapshotId(Struct):
    __slots__ = ("end_offset", "epoch")

    def __init__(
        self,
        *,
        end_offset: int = -1,
        epoch: int = -1,
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class AbortedTransaction(Struct):
    __slots__ = ("producer_id", "first_offset")

    def __init__(
        self,
        *,
        producer_id: int = 0,
        first_offset: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset


class PartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "high_watermark", "last_stable_offset", "log_start_offset", "diverging_epoch", "current_leader", "snapshot_id", "aborted_transactions", "preferred_read_replica", "records")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: list[AbortedTransaction] | None = EMPTY,
        preferred_read_replica: int = -1,
        records: Any = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader
        self.snapshot_id = snapshot_id
        self.aborted_transactions = [] if aborted_transactions is EMPTY else aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.records = records


class FetchableTopicResponse(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic = topic
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


class FetchResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "session_id", "responses", "node_endpoints")
    API_KEY: ClassVar[int | None] = 1
    MIN_VERSION: ClassVar[int] = 4
    MAX_VERSION: ClassVar[int] = 18
    FLEXIBLE_MIN: ClassVar[int] = 12
    DEFINITION: ClassVar[str] = '{"apiKey":1,"type":"response","name":"FetchResponse","validVersions":"4-18","flexibleVersions":"12+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"7+","ignorable":true},{"name":"SessionId","type":"int32","versions":"7+","default":"0","ignorable":false},{"name":"Responses","type":"[]FetchableTopicResponse","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0-12","ignorable":true,"entityType":"topicName"},{"name":"TopicId","type":"uuid","versions":"13+","ignorable":true},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"HighWatermark","type":"int64","versions":"0+"},{"name":"LastStableOffset","type":"int64","versions":"4+","default":"-1","ignorable":true},{"name":"LogStartOffset","type":"int64","versions":"5+","default":"-1","ignorable":true},{"name":"DivergingEpoch","type":"EpochEndOffset","versions":"12+","taggedVersions":"12+","tag":0,"fields":[{"name":"Epoch","type":"int32","versions":"12+","default":"-1"},{"name":"EndOffset","type":"int64","versions":"12+","default":"-1"}]},{"name":"CurrentLeader","type":"LeaderIdAndEpoch","versions":"12+","taggedVersions":"12+","tag":1,"fields":[{"name":"LeaderId","type":"int32","versions":"12+","default":"-1","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"12+","default":"-1"}]},{"name":"SnapshotId","type":"SnapshotId","versions":"12+","taggedVersions":"12+","tag":2,"fields":[{"name":"EndOffset","type":"int64","versions":"0+","default":"-1"},{"name":"Epoch","type":"int32","versions":"0+","default":"-1"}]},{"name":"AbortedTransactions","type":"[]AbortedTransaction","versions":"4+","nullableVersions":"4+","ignorable":true,"fields":[{"name":"ProducerId","type":"int64","versions":"4+","entityType":"producerId"},{"name":"FirstOffset","type":"int64","versions":"4+"}]},{"name":"PreferredReadReplica","type":"int32","versions":"11+","default":"-1","ignorable":false,"entityType":"brokerId"},{"name":"Records","type":"records","versions":"0+","nullableVersions":"0+"}]}]},{"name":"NodeEndpoints","type":"[]NodeEndpoint","versions":"16+","taggedVersions":"16+","tag":0,"fields":[{"name":"NodeId","type":"int32","versions":"16+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"16+"},{"name":"Port","type":"int32","versions":"16+"},{"name":"Rack","type":"string","versions":"16+","nullableVersions":"16+","default":"null"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchableTopicResponse] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses = [] if responses is EMPTY else responses
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
