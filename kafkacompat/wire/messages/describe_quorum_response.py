"""DescribeQuorumResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeQuorumResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ReplicaState(Struct):
    __slots__ = ("replica_id", "replica_directory_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp")

    def __init__(
        self,
        *,
        replica_id: int = 0,
        replica_directory_id: bytes = bytes(16),
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp
        self.last_caught_up_timestamp = last_caught_up_timestamp


class PartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "error_message", "leader_id", "leader_epoch", "high_watermark", "current_voters", "observers")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] = EMPTY,
        observers: list[ReplicaState] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters = [] if current_voters is EMPTY else current_voters
        self.observers = [] if observers is EMPTY else observers


class TopicData(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class Listener(Struct):
    __slots__ = ("name", "host", "port")

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port


class Node(Struct):
    __slots__ = ("node_id", "listeners")

    def __init__(
        self,
        *,
        node_id: int = 0,
        listeners: list[Listener] = EMPTY,
    ) -> None:
        self.node_id = node_id
        self.listeners = [] if listeners is EMPTY else listeners


class DescribeQuorumResponse(Message):
    __slots__ = ("error_code", "error_message", "topics", "nodes")
    API_KEY: ClassVar[int | None] = 55
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":55,"type":"response","name":"DescribeQuorumResponse","validVersions":"0-2","flexibleVersions":"0+","commonStructs":[{"name":"ReplicaState","versions":"0+","fields":[{"name":"ReplicaId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"ReplicaDirectoryId","type":"uuid","versions":"2+"},{"name":"LogEndOffset","type":"int64","versions":"0+"},{"name":"LastFetchTimestamp","type":"int64","versions":"1+","ignorable":true,"default":-1},{"name":"LastCaughtUpTimestamp","type":"int64","versions":"1+","ignorable":true,"default":-1}]}],"fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"2+","nullableVersions":"2+","ignorable":true},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"2+","nullableVersions":"2+","ignorable":true},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"HighWatermark","type":"int64","versions":"0+"},{"name":"CurrentVoters","type":"[]ReplicaState","versions":"0+"},{"name":"Observers","type":"[]ReplicaState","versions":"0+"}]}]},{"name":"Nodes","type":"[]Node","versions":"2+","fields":[{"name":"NodeId","type":"int32","versions":"2+","mapKey":true,"entityType":"brokerId"},{"name":"Listeners","type":"[]Listener","versions":"2+","fields":[{"name":"Name","type":"string","versions":"2+","mapKey":true},{"name":"Host","type":"string","versions":"2+"},{"name":"Port","type":"uint16","versions":"2+"}]}]}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[TopicData] = EMPTY,
        nodes: list[Node] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.topics = [] if topics is EMPTY else topics
        self.nodes = [] if nodes is EMPTY else nodes
