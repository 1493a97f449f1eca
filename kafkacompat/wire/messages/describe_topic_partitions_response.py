"""DescribeTopicPartitionsResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeTopicPartitionsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeTopicPartitionsResponsePartition(Struct):
    __slots__ = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "eligible_leader_replicas", "last_known_elr", "offline_replicas")

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] = EMPTY,
        isr_nodes: list[int] = EMPTY,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
        offline_replicas: list[int] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes = [] if replica_nodes is EMPTY else replica_nodes
        self.isr_nodes = [] if isr_nodes is EMPTY else isr_nodes
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
        self.offline_replicas = [] if offline_replicas is EMPTY else offline_replicas


class DescribeTopicPartitionsResponseTopic(Struct):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations")

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = bytes(16),
        is_internal: bool = False,
        partitions: list[DescribeTopicPartitionsResponsePartition] = EMPTY,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = [] if partitions is EMPTY else partitions
        self.topic_authorized_operations = topic_authorized_operations


class Cursor(Struct):
    __slots__ = ("topic_name", "partition_index")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsResponse(Message):
    __slots__ = ("throttle_time_ms", "topics", "next_cursor")
    API_KEY: ClassVar[int | None] = 75
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":75,"type":"response","name":"DescribeTopicPartitionsResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+","ignorable":true},{"name":"Topics","type":"[]DescribeTopicPartitionsResponseTopic","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName","nullableVersions":"0+"},{"name":"TopicId","type":"uuid","versions":"0+","ignorable":true},{"name":"IsInternal","type":"bool","versions":"0+","default":"false","ignorable":true},{"name":"Partitions","type":"[]DescribeTopicPartitionsResponsePartition","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+","default":"-1","ignorable":true},{"name":"ReplicaNodes","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"IsrNodes","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"EligibleLeaderReplicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+"},{"name":"LastKnownElr","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+"},{"name":"OfflineReplicas","type":"[]int32","versions":"0+","ignorable":true,"entityType":"brokerId"}]},{"name":"TopicAuthorizedOperations","type":"int32","versions":"0+","default":"-2147483648"}]},{"name":"NextCursor","type":"Cursor","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"PartitionIndex","type":"int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponseTopic] = EMPTY,
        next_cursor: Cursor | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
        self.next_cursor = next_cursor
