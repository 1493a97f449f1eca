"""RemotePartitionDeleteMetadataRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/storage/RemotePartitionDeleteMetadataRecord.json."""

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


class RemotePartitionDeleteMetadataRecord(Message):
    __slots__ = ("topic_id_partition", "broker_id", "event_timestamp_ms", "remote_partition_delete_state")
    API_KEY: ClassVar[int | None] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":2,"type":"metadata","name":"RemotePartitionDeleteMetadataRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"TopicIdPartition","type":"TopicIdPartitionEntry","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Id","type":"uuid","versions":"0+"},{"name":"Partition","type":"int32","versions":"0+"}]},{"name":"BrokerId","type":"int32","versions":"0+"},{"name":"EventTimestampMs","type":"int64","versions":"0+"},{"name":"RemotePartitionDeleteState","type":"int8","versions":"0+"}]}'

    def __init__(
        self,
        *,
        topic_id_partition: TopicIdPartitionEntry | None = None,
        broker_id: int = 0,
        event_timestamp_ms: int = 0,
        remote_partition_delete_state: int = 0,
    ) -> None:
        self.topic_id_partition = TopicIdPartitionEntry() if topic_id_partition is None else topic_id_partition
        self.broker_id = broker_id
        self.event_timestamp_ms = event_timestamp_ms
        self.remote_partition_delete_state = remote_partition_delete_state
