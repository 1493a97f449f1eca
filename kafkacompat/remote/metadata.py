"""What is known of segments in a remote store: values, and the states that they pass through (KIP-405).

Names and states are those of Kafka's storage API. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import TopicPartition, Uuid, uuid_to_text


class TopicIdPartition(NamedTuple):
    """A partition of one topic, which keeps its id when its name is given again."""

    topic_id: Uuid
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{uuid_to_text(self.topic_id)}:{self.topic}-{self.partition}"


class RemoteLogSegmentId(NamedTuple):
    """One copy of a segment. A new attempt to copy the same segment gets a new id."""

    topic_id_partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.topic_id_partition}:{uuid_to_text(self.id)}"


class RemoteLogSegmentState(IntEnum):
    """Their numbers are in records of `__remote_log_metadata`."""

    COPY_SEGMENT_STARTED = 0
    """The copy may be partial: it is not read, but it is deleted with its partition."""
    COPY_SEGMENT_FINISHED = 1
    """The copy is whole, and is read."""
    DELETE_SEGMENT_STARTED = 2
    """The copy may be partial again: it is not read, and its deletion may be repeated."""
    DELETE_SEGMENT_FINISHED = 3
    """Nothing is left."""


_SEGMENT_TRANSITIONS = frozenset(
    {
        (RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
        (RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
        (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED),
    }
)


def may_follow(before: RemoteLogSegmentState | None, after: RemoteLogSegmentState) -> bool:
    """Whether a segment may pass from one state to the other. None: it is not known yet. A state may follow itself,
    because each step may be repeated after a failure or by the next leader."""
    if before is None:
        return after is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return before is after or (before, after) in _SEGMENT_TRANSITIONS


class RemotePartitionDeleteState(IntEnum):
    """Their numbers are in records of `__remote_log_metadata`."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


def deletion_may_follow(before: RemotePartitionDeleteState | None, after: RemotePartitionDeleteState) -> bool:
    """Whether the deletion of a partition may pass from one state to the other. None: it is not deleted."""
    if before is None:
        return after is RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    return after in (before, before + 1)


LeaderEpochs: TypeAlias = tuple[tuple[int, int], ...]
"""Leader epochs of records, ascending, each with its first offset."""


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A step of a segment to another state."""

    remote_log_segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    """What the store wants to have kept with the segment. It replaces what was kept before, also with None."""
    state: RemoteLogSegmentState
    broker_id: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """A copy of a segment. Raises ValueError for offsets that no segment has, and if it has no leader epochs."""

    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    """The offset of the last record."""
    max_timestamp_ms: int
    broker_id: int
    """The broker that has written this state."""
    event_timestamp_ms: int
    """When it has."""
    segment_size_in_bytes: int
    segment_leader_epochs: LeaderEpochs
    """Each with the first offset of the segment that has it. Never empty."""
    custom_metadata: bytes | None = None
    """What the store wants to have kept with the segment: remote.log.metadata.custom.metadata.max.bytes at most."""
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    txn_idx_empty: bool = False
    """Whether the segment is known to have no aborted transactions."""

    def __post_init__(self) -> None:
        if self.start_offset < 0 or self.end_offset < self.start_offset:
            raise ValueError(f"a remote segment from offset {self.start_offset} to {self.end_offset}")
        if not self.segment_leader_epochs:
            raise ValueError(f"remote segment {self.remote_log_segment_id} has no leader epochs")

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.remote_log_segment_id.topic_id_partition

    def with_update(self, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
        """The same copy in the state of the update, whatever state it had."""
        if update.remote_log_segment_id != self.remote_log_segment_id:
            raise ValueError(f"an update of {update.remote_log_segment_id} for {self.remote_log_segment_id}")
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )

    def end_offset_of_epoch(self, leader_epoch: int) -> int:
        """The offset of the last record in the segment with this leader epoch, which must be one of the segment's."""
        epochs = self.segment_leader_epochs
        later = bisect_right(epochs, leader_epoch, key=lambda entry: entry[0])
        return epochs[later][1] - 1 if later < len(epochs) else self.end_offset


class CompactedMark(NamedTuple):
    """What is kept with a copy of a compacted topic, in the place of what its store wants to have kept, if it wants nothing."""

    cleaned_to: int
    """Each record of the copy is the last one of its key below this offset. -1: that is not known."""
    leader_epoch: int
    """Of the broker that has made the copy."""


_MARK = Struct(">2sqi")
_MARKED = b"kc"


def mark_bytes(mark: CompactedMark) -> bytes:
    return _MARK.pack(_MARKED, *mark)


def has_mark(metadata: RemoteLogSegmentMetadata) -> bool:
    custom = metadata.custom_metadata
    return custom is not None and len(custom) == _MARK.size and custom.startswith(_MARKED)


def mark_of(metadata: RemoteLogSegmentMetadata) -> CompactedMark:
    """What is known of a copy without a mark: its leader had at least the last epoch of its records."""
    if has_mark(metadata):
        return CompactedMark(*_MARK.unpack(metadata.custom_metadata or b"")[1:])
    return CompactedMark(-1, metadata.segment_leader_epochs[-1][0])


def leader_epochs(entries: Iterable[tuple[int, int]]) -> LeaderEpochs:
    """(epoch, first offset) in any order, as a value of `segment_leader_epochs`. The last one of an epoch holds."""
    return tuple(sorted(dict(entries).items()))


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """A step of the deletion of all that a partition has in the remote store."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


RemoteLogMetadata: TypeAlias = (
    RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
)
"""What one record of `__remote_log_metadata` says."""
