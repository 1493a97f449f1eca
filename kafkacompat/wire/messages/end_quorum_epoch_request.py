"""EndQuorumEpochRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EndQuorumEpochRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ReplicaInfo(Struct):
    __slots__ = ("candidate_id", "candidate_directory_id")

    def __init__(
        self,
        *,
        candidate_id: int = 0,
        candidate_directory_id: bytes = bytes(16),
    ) -> None:
        self.candidate_id = candidate_id
        self.candidate_directory_id = candidate_directory_id


class PartitionData(Struct):
    __slots__ = ("partition_index", "leader_id", "leader_epoch", "preferred_successors", "preferred_candidates")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
        preferred_successors: list[int] = EMPTY,
        preferred_candidates: list[ReplicaInfo] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.preferred_successors = [] if preferred_successors is EMPTY else preferred_successors
        self.preferred_candidates = [] if preferred_candidates is EMPTY else preferred_candidates


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


class EndQuorumEpochRequest(Message):
    __slots__ = ("cluster_id", "topics", "leader_endpoints")
    API_KEY: ClassVar[int | None] = 54
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 1
    DEFINITION: ClassVar[str] = '{"apiKey":54,"type":"request","listeners":["controller"],"name":"EndQuorumEpochRequest","validVersions":"0-1","flexibleVersions":"1+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"PreferredSuccessors","type":"[]int32","versions":"0","ignorable":true},{"name":"PreferredCandidates","type":"[]ReplicaInfo","versions":"1+","ignorable":true,"fields":[{"name":"CandidateId","type":"int32","versions":"1+","entityType":"brokerId"},{"name":"CandidateDirectoryId","type":"uuid","versions":"1+"}]}]}]},{"name":"LeaderEndpoints","type":"[]LeaderEndpoint","versions":"1+","ignorable":true,"fields":[{"name":"Name","type":"string","versions":"1+","mapKey":true},{"name":"Host","type":"string","versions":"1+"},{"name":"Port","type":"uint16","versions":"1+"}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        topics: list[TopicData] = EMPTY,
        leader_endpoints: list[LeaderEndpoint] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = [] if topics is EMPTY else topics
        self.leader_endpoints = [] if leader_endpoints is EMPTY else leader_endpoints
