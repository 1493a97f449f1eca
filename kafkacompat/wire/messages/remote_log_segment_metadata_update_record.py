"""RemoteLogSegmentMetadataUpdateRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/storage/RemoteLogSegmentMetadataUpdateRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message, Struct


class TopicIdPartitionEntry(Struct):
    __slots__ = ("name", "id", "partition")

    def __init__(
        self,
        *,
        name: str = "",
        id: bytes = bytes(16),
        partition: int = 0,
    ) -> None:
        self.name = name
        self.id = id
        self.partition = partition


class RemoteLogSegmentIdEntry(Struct):
    __slots__ = ("topic_id_partition", "id")

    def __init__(
        self,
        *,
        topic_id_partition: TopicIdPartitionEntry | None = None,
        id: bytes = bytes(16),
    ) -> None:
        self.topic_id_partition = TopicIdPartitionEntry() if topic_id_partition is None else topic_id_partition
        self.id = id


class RemoteLogSegmentMetadataUpdateRecord(Message):
    __slots__ = ("remote_log_segment_id", "broker_id", "event_timestamp_ms", "custom_metadata", "remote_log_segment_state")
    API_KEY: ClassVar[int | None] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":1,"type":"metadata","name":"RemoteLogSegmentMetadataUpdateRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"RemoteLogSegmentId","type":"RemoteLogSegmentIdEntry","versions":"0+","fields":[{"name":"TopicIdPartition","type":"TopicIdPartitionEntry","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Id","type":"uuid","versions":"0+"},{"name":"Partition","type":"int32","versions":"0+"}]},{"name":"Id","type":"uuid","versions":"0+"}]},{"name":"BrokerId","type":"int32","versions":"0+"},{"name":"EventTimestampMs","type":"int64","versions":"0+"},{"name":"CustomMetadata","type":"bytes","default":"null","versions":"0+","nullableVersions":"0+"},{"name":"RemoteLogSegmentState","type":"int8","versions":"0+"}]}'

    def __init__(
        self,
        *,
        remote_log_segment_id: RemoteLogSegmentIdEntry | None = None,
        broker_id: int = 0,
        event_timestamp_ms: int = 0,
        custom_metadata: bytes | None = None,
        remote_log_segment_state: int = 0,
    ) -> None:
        self.remote_log_segment_id = RemoteLogSegmentIdEntry() if remote_log_segment_id is None else remote_log_segment_id
        self.broker_id = broker_id
        self.event_timestamp_ms = event_timestamp_ms
        self.custom_metadata = custom_metadata
        self.remote_log_segment_state = remote_log_segment_state
