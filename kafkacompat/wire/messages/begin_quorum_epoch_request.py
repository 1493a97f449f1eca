"""BeginQuorumEpochRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/BeginQuorumEpochRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index", "voter_directory_id", "leader_id", "leader_epoch")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        voter_directory_id: bytes = bytes(16),
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.voter_directory_id = voter_directory_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


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


class LeaderEndpoint(Struct):
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


class BeginQuorumEpochRequest(Message):
    __slots__ = ("cluster_id", "voter_id", "topics", "leader_endpoints")
    API_KEY: ClassVar[int | None] = 53
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":53,"type":"request","listeners":["controller"],"name":"BeginQuorumEpochRequest","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"VoterId","type":"int32","versions":"1+","ignorable":true,"default":"-1","entityType":"brokerId"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"VoterDirectoryId","type":"uuid","versions":"1+","ignorable":true},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+"}]}]},{"name":"LeaderEndpoints","type":"[]LeaderEndpoint","versions":"1+","ignorable":true,"fields":[{"name":"Name","type":"string","versions":"1+","mapKey":true},{"name":"Host","type":"string","versions":"1+"},{"name":"Port","type":"uint16","versions":"1+"}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        voter_id: int = -1,
        topics: list[TopicData] = EMPTY,
        leader_endpoints: list[LeaderEndpoint] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.topics = [] if topics is EMPTY else topics
        self.leader_endpoints = [] if leader_endpoints is EMPTY else leader_endpoints
