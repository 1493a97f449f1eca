"""VoteRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/VoteRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index", "replica_epoch", "replica_id", "replica_directory_id", "voter_directory_id", "last_offset_epoch", "last_offset", "pre_vote")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replica_epoch: int = 0,
        replica_id: int = 0,
        replica_directory_id: bytes = bytes(16),
        voter_directory_id: bytes = bytes(16),
        last_offset_epoch: int = 0,
        last_offset: int = 0,
        pre_vote: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.replica_epoch = replica_epoch
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.voter_directory_id = voter_directory_id
        self.last_offset_epoch = last_offset_epoch
        self.last_offset = last_offset
        self.pre_vote = pre_vote


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


class VoteRequest(Message):
    __slots__ = ("cluster_id", "voter_id", "topics")
    API_KEY: ClassVar[int | None] = 52
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":52,"type":"request","listeners":["controller"],"name":"VoteRequest","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"VoterId","type":"int32","versions":"1+","ignorable":true,"default":"-1","entityType":"brokerId"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ReplicaEpoch","type":"int32","versions":"0+"},{"name":"ReplicaId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"ReplicaDirectoryId","type":"uuid","versions":"1+","ignorable":true},{"name":"VoterDirectoryId","type":"uuid","versions":"1+","ignorable":true},{"name":"LastOffsetEpoch","type":"int32","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"PreVote","type":"bool","versions":"2+"}]}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        voter_id: int = -1,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.topics = [] if topics is EMPTY else topics
