"""FetchSnapshotRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FetchSnapshotRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class SnapshotId(Struct):
    __slots__ = ("end_offset", "epoch")

    def __init__(
        self,
        *,
        end_offset: int = 0,
        epoch: int = 0,
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class PartitionSnapshot(Struct):
    __slots__ = ("partition", "current_leader_epoch", "snapshot_id", "position", "replica_directory_id")

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = 0,
        snapshot_id: SnapshotId | None = None,
        position: int = 0,
        replica_directory_id: bytes = bytes(16),
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.position = position
        self.replica_directory_id = replica_directory_id


class TopicSnapshot(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[PartitionSnapshot] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class FetchSnapshotRequest(Message):
    __slots__ = ("cluster_id", "replica_id", "max_bytes", "topics")
    API_KEY: ClassVar[int | None] = 59
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":59,"type":"request","listeners":["controller"],"name":"FetchSnapshotRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+","default":"null","taggedVersions":"0+","tag":0},{"name":"ReplicaId","type":"int32","versions":"0+","default":"-1","entityType":"brokerId"},{"name":"MaxBytes","type":"int32","versions":"0+","default":"0x7fffffff"},{"name":"Topics","type":"[]TopicSnapshot","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionSnapshot","versions":"0+","fields":[{"name":"Partition","type":"int32","versions":"0+"},{"name":"CurrentLeaderEpoch","type":"int32","versions":"0+"},{"name":"SnapshotId","type":"SnapshotId","versions":"0+","fields":[{"name":"EndOffset","type":"int64","versions":"0+"},{"name":"Epoch","type":"int32","versions":"0+"}]},{"name":"Position","type":"int64","versions":"0+"},{"name":"ReplicaDirectoryId","type":"uuid","versions":"1+","taggedVersions":"1+","tag":0,"ignorable":true}]}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        max_bytes: int = 2147483647,
        topics: list[TopicSnapshot] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.max_bytes = max_bytes
        self.topics = [] if topics is EMPTY else topics
