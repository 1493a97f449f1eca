"""RemoteLogSegmentMetadataSnapshotRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/storage/RemoteLogSegmentMetadataSnapshotRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class SegmentLeaderEpochEntry(Struct):
    __slots__ = ("leader_epoch", "offset")

    def __init__(
        self,
        *,
        leader_epoch: int = 0,
        offset: int = 0,
    ) -> None:
        self.leader_epoch = leader_epoch
        self.offset = offset


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    __slots__ = ("segment_id", "start_offset", "end_offset", "broker_id", "max_timestamp_ms", "event_timestamp_ms", "segment_leader_epochs", "segment_size_in_bytes", "custom_metadata", "remote_log_segment_state", "txn_index_empty")
    API_KEY: ClassVar[int | None] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":3,"type":"metadata","name":"RemoteLogSegmentMetadataSnapshotRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"SegmentId","type":"uuid","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"},{"name":"EndOffset","type":"int64","versions":"0+"},{"name":"BrokerId","type":"int32","versions":"0+"},{"name":"MaxTimestampMs","type":"int64","versions":"0+"},{"name":"EventTimestampMs","type":"int64","versions":"0+"},{"name":"SegmentLeaderEpochs","type":"[]SegmentLeaderEpochEntry","versions":"0+","fields":[{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"Offset","type":"int64","versions":"0+"}]},{"name":"SegmentSizeInBytes","type":"int32","versions":"0+"},{"name":"CustomMetadata","type":"bytes","default":"null","versions":"0+","nullableVersions":"0+"},{"name":"RemoteLogSegmentState","type":"int8","versions":"0+"},{"name":"TxnIndexEmpty","type":"bool","versions":"0+","taggedVersions":"0+","tag":0}]}'

    def __init__(
        self,
        *,
        segment_id: bytes = bytes(16),
        start_offset: int = 0,
        end_offset: int = 0,
        broker_id: int = 0,
        max_timestamp_ms: int = 0,
        event_timestamp_ms: int = 0,
        segment_leader_epochs: list[SegmentLeaderEpochEntry] = EMPTY,
        segment_size_in_bytes: int = 0,
        custom_metadata: bytes | None = None,
        remote_log_segment_state: int = 0,
        txn_index_empty: bool = False,
    ) -> None:
        self.segment_id = segment_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.broker_id = broker_id
        self.max_timestamp_ms = max_timestamp_ms
        self.event_timestamp_ms = event_timestamp_ms
        self.segment_leader_epochs = [] if segment_leader_epochs is EMPTY else segment_leader_epochs
        self.segment_size_in_bytes = segment_size_in_bytes
        self.custom_metadata = custom_metadata
        self.remote_log_segment_state = remote_log_segment_state
        self.txn_index_empty = txn_index_empty
