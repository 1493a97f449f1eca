"""FetchSnapshotResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/FetchSnapshotResponse.json."""

from __future__ import annotations

from typing import Any, ClassVar

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


class PartitionSnapshot(Struct):
    __slots__ = ("index", "error_code", "snapshot_id", "current_leader", "size", "position", "unaligned_records")

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        snapshot_id: SnapshotId | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        size: int = 0,
        position: int = 0,
        unaligned_records: Any = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.current_leader = current_leader
        self.size = size
        self.position = position
        self.unaligned_records = unaligned_records


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


class NodeEndpoint(Struct):
    __slots__ = ("node_id", "host", "port")

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port


class FetchSnapshotResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "topics", "node_endpoints")
    API_KEY: ClassVar[int | None] = 59
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":59,"type":"response","name":"FetchSnapshotResponse","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+","ignorable":false},{"name":"Topics","type":"[]TopicSnapshot","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionSnapshot","versions":"0+","fields":[{"name":"Index","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"SnapshotId","type":"SnapshotId","versions":"0+","fields":[{"name":"EndOffset","type":"int64","versions":"0+"},{"name":"Epoch","type":"int32","versions":"0+"}]},{"name":"CurrentLeader","type":"LeaderIdAndEpoch","versions":"0+","taggedVersions":"0+","tag":0,"fields":[{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+"}]},{"name":"Size","type":"int64","versions":"0+"},{"name":"Position","type":"int64","versions":"0+"},{"name":"UnalignedRecords","type":"records","versions":"0+"}]}]},{"name":"NodeEndpoints","type":"[]NodeEndpoint","versions":"1+","taggedVersions":"1+","tag":0,"fields":[{"name":"NodeId","type":"int32","versions":"1+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"1+"},{"name":"Port","type":"uint16","versions":"1+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[TopicSnapshot] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.topics = [] if topics is EMPTY else topics
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
