"""MetadataResponse, versions 0 to 13.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/MetadataResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class MetadataResponseBroker(Struct):
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


class MetadataResponsePartition(Struct):
    __slots__ = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas")

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] = EMPTY,
        isr_nodes: list[int] = EMPTY,
        offline_replicas: list[int] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes = [] if replica_nodes is EMPTY else replica_nodes
        self.isr_nodes = [] if isr_nodes is EMPTY else isr_nodes
        self.offline_replicas = [] if offline_replicas is EMPTY else offline_replicas


class MetadataResponseTopic(Struct):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations")

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = bytes(16),
        is_internal: bool = False,
        partitions: list[MetadataResponsePartition] = EMPTY,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = [] if partitions is EMPTY else partitions
        self.topic_authorized_operations = topic_authorized_operations


class MetadataResponse(Message):
    __slots__ = ("throttle_time_ms", "brokers", "cluster_id", "controller_id", "topics", "cluster_authorized_operations", "error_code")
    API_KEY: ClassVar[int | None] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_MIN: ClassVar[int] = 9
    DEFINITION: ClassVar[str] = '{"apiKey":3,"type":"response","name":"MetadataResponse","validVersions":"0-13","flexibleVersions":"9+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"3+","ignorable":true},{"name":"Brokers","type":"[]MetadataResponseBroker","versions":"0+","fields":[{"name":"NodeId","type":"int32","versions":"0+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"int32","versions":"0+"},{"name":"Rack","type":"string","versions":"1+","nullableVersions":"1+","ignorable":true,"default":"null"}]},{"name":"ClusterId","type":"string","nullableVersions":"2+","versions":"2+","ignorable":true,"default":"null"},{"name":"ControllerId","type":"int32","versions":"1+","default":"-1","ignorable":true,"entityType":"brokerId"},{"name":"Topics","type":"[]MetadataResponseTopic","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName","nullableVersions":"12+"},{"name":"TopicId","type":"uuid","versions":"10+","ignorable":true},{"name":"IsInternal","type":"bool","versions":"1+","default":"false","ignorable":true},{"name":"Partitions","type":"[]MetadataResponsePartition","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"7+","default":"-1","ignorable":true},{"name":"ReplicaNodes","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"IsrNodes","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"OfflineReplicas","type":"[]int32","versions":"5+","ignorable":true,"entityType":"brokerId"}]},{"name":"TopicAuthorizedOperations","type":"int32","versions":"8+","default":"-2147483648"}]},{"name":"ClusterAuthorizedOperations","type":"int32","versions":"8-10","default":"-2147483648"},{"name":"ErrorCode","type":"int16","versions":"13+","ignorable":true}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponseBroker] = EMPTY,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponseTopic] = EMPTY,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.brokers = [] if brokers is EMPTY else brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics = [] if topics is EMPTY else topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code
