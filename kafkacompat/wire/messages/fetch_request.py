"""FetchRequest, versions 4 to 18.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FetchRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ReplicaState(Struct):
    __slots__ = ("replica_id", "replica_epoch")

    def __init__(
        self,
        *,
        replica_id: int = -1,
        replica_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


class FetchPartition(Struct):
    __slots__ = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset", "partition_max_bytes", "replica_directory_id", "high_watermark")

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = bytes(16),
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


class FetchTopic(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[FetchPartition] = EMPTY,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ForgottenTopic(Struct):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class FetchRequest(Message):
    __slots__ = ("cluster_id", "replica_id", "replica_state", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch", "topics", "forgotten_topics_data", "rack_id")
    API_KEY: ClassVar[int | None] = 1
    MIN_VERSION: ClassVar[int] = 4
    MAX_VERSION: ClassVar[int] = 18
    FLEXIBLE_MIN: ClassVar[int] = 12
    DEFINITION: ClassVar[str] = '{"apiKey":1,"type":"request","listeners":["broker","controller"],"name":"FetchRequest","validVersions":"4-18","flexibleVersions":"12+","fields":[{"name":"ClusterId","type":"string","versions":"12+","nullableVersions":"12+","default":"null","taggedVersions":"12+","tag":0,"ignorable":true},{"name":"ReplicaId","type":"int32","versions":"0-14","default":"-1","entityType":"brokerId"},{"name":"ReplicaState","type":"ReplicaState","versions":"15+","taggedVersions":"15+","tag":1,"fields":[{"name":"ReplicaId","type":"int32","versions":"15+","default":"-1","entityType":"brokerId"},{"name":"ReplicaEpoch","type":"int64","versions":"15+","default":"-1"}]},{"name":"MaxWaitMs","type":"int32","versions":"0+"},{"name":"MinBytes","type":"int32","versions":"0+"},{"name":"MaxBytes","type":"int32","versions":"3+","default":"0x7fffffff","ignorable":true},{"name":"IsolationLevel","type":"int8","versions":"4+","default":"0","ignorable":true},{"name":"SessionId","type":"int32","versions":"7+","default":"0","ignorable":true},{"name":"SessionEpoch","type":"int32","versions":"7+","default":"-1","ignorable":true},{"name":"Topics","type":"[]FetchTopic","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0-12","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"13+","ignorable":true},{"name":"Partitions","type":"[]FetchPartition","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"CurrentLeaderEpoch","type":"int32","versions":"9+","default":"-1","ignorable":true},{"name":"FetchOffset","type":"int64","versions":"0+"},{"name":"LastFetchedEpoch","type":"int32","versions":"12+","default":"-1","ignorable":false},{"name":"LogStartOffset","type":"int64","versions":"5+","default":"-1","ignorable":true},{"name":"PartitionMaxBytes","type":"int32","versions":"0+"},{"name":"ReplicaDirectoryId","type":"uuid","versions":"17+","taggedVersions":"17+","tag":0,"ignorable":true},{"name":"HighWatermark","type":"int64","versions":"18+","default":"9223372036854775807","taggedVersions":"18+","tag":1,"ignorable":true}]}]},{"name":"ForgottenTopicsData","type":"[]ForgottenTopic","versions":"7+","ignorable":false,"fields":[{"name":"Topic","type":"string","versions":"7-12","entityType":"topicName","ignorable":true},{"name":"TopicId","type":"uuid","versions":"13+","ignorable":true},{"name":"Partitions","type":"[]int32","versions":"7+"}]},{"name":"RackId","type":"string","versions":"11+","default":"","ignorable":true}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] = EMPTY,
        forgotten_topics_data: list[ForgottenTopic] = EMPTY,
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = [] if forgotten_topics_data is EMPTY else forgotten_topics_data
        self.rack_id = rack_id
