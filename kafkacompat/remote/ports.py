"""The two interfaces of tiered storage (KIP-405): to the store of segments, and to what is known of them.

Protocols, their values and their errors; nothing here acts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.remote.metadata import (
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata,
        TopicIdPartition,
    )
    from kafkacompat.remote.metadata_cache import Piece


class RemoteStorageException(Exception):
    """The remote store, or what is known of it, cannot do what is asked. By itself it does not pass."""


class RemoteResourceNotFoundException(RemoteStorageException):
    """The remote store does not have it, or the partition has nothing in the remote store."""


class RetriableRemoteStorageException(RemoteStorageException):
    """The same call may succeed later."""


class RemoteStorageNotReadyException(RetriableRemoteStorageException):
    """What is known of a partition's segments is still being loaded."""


class IndexType(Enum):
    """What is stored beside the records of a segment."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer snapshot"
    TRANSACTION = "transaction"
    """Missing where a segment has no aborted transactions."""
    LEADER_EPOCH = "leader epoch"


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The files of one segment that is to be copied, by absolute path, and what is in no file. None of the files changes or goes
    during the copy: whoever asks for the copy sees to it, for example with links of its own."""

    log_segment: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    """None if the segment has no aborted transactions."""
    producer_snapshot_index: str | bytes
    """The producer snapshot at the end of the segment. Bytes if it is in no file."""
    leader_epoch_index: bytes
    """The leader epoch checkpoint up to the end of the segment, as the file of that name."""


class RemoteInputStream(Protocol):
    """Bytes that arrive from the remote store. Blocks."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, all that are left if it is negative, b"" at the end. Raises RemoteStorageException; also if
        the store has sent less than it has announced."""
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """As `read`, into this memory. Returns the bytes that it has now, 0 at the end."""
        ...

    def close(self) -> None:
        """Give up what is left. May be called twice."""
        ...


class RemoteStorageManager(Protocol):
    """The remote store of segments. Its calls block, so they are made in threads of their own duty, from several at once.
    Each ends within the time limits of the store. Any may raise RemoteStorageException, or RetriableRemoteStorageException if
    the cause may pass; nothing else."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store a segment with all that belongs to it. When it returns, everything is durable. A repeated call for the same
        id replaces what an earlier one has left. After a failure, anything may be left until it is deleted.

        Returns what is to be kept with the segment's metadata, for the store's later calls."""
        ...

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> RemoteInputStream:
        """The bytes of the segment's file from `start_position` to `end_position`, both inclusive. None, or a position behind
        the end: up to the end of the file. Raises RemoteResourceNotFoundException."""
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> RemoteInputStream:
        """The whole file. Raises RemoteResourceNotFoundException, also for the transaction index of a segment without aborted
        transactions."""
        ...

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete whatever the store has of this id. What is missing already is no error."""
        ...

    def close(self) -> None:
        """No call follows. Calls in progress may fail."""
        ...


class RemoteLogMetadataManager(Protocol):
    """What is known of the segments in the remote store, by partition and leader epoch. Called in the loop's thread.

    It knows partitions that were named to `on_partition_leadership_changes`, as soon as their records are loaded. The plain
    functions answer from memory. They raise RemoteStorageNotReadyException while the partition is loaded, and
    RemoteResourceNotFoundException if it was not named. A list is a copy, which does not change later."""

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Deferred[None]:
        """Record that a copy begins. Done when the record is durable and later calls here know it. Raises ValueError unless
        the state is COPY_SEGMENT_STARTED. Fails with RemoteStorageException."""
        ...

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Deferred[None]:
        """Record a step. Done when the record is durable and later calls here know it. A step that the present state does not
        allow is recorded and changes nothing. Raises ValueError if the state is COPY_SEGMENT_STARTED. Fails with
        RemoteStorageException."""
        ...

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch_for_offset: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The copy that has this offset with this leader epoch, among those that may be read (COPY_SEGMENT_FINISHED)."""
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """The highest offset with this leader epoch that has ever been copied whole, also if the copy was deleted later."""
        ...

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """All copies of which something may be in the remote store, in any of the first three states. With a leader epoch:
        those that contain it, by ascending start offset; a repeated copy of one segment appears beside the earlier one."""
        ...

    def pieces(self, partition: TopicIdPartition) -> Sequence[Piece]:
        """What is read of a compacted topic, by offset, whatever the leader epochs are."""
        ...

    def piece_at(self, partition: TopicIdPartition, offset: int) -> Piece | None:
        """The one with this offset."""
        ...

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first copy that may have aborted transactions, from the one that has this offset on, within this leader epoch."""
        ...

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Bytes of all copies that contain this leader epoch: each with its whole size."""
        ...

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Deferred[None]:
        """Record a step of the deletion of a partition. After DELETE_PARTITION_FINISHED the partition is not known any more.
        Fails with RemoteStorageException."""
        ...

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        """This node leads and follows these partitions, beside those named before. Their records are loaded."""
        ...

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """This node has no replica of these partitions any more. What is known of them is forgotten."""
        ...

    def is_deletion_unfinished(self, partition: TopicIdPartition) -> bool:
        """Whether the deletion of a partition was begun and is not finished, and this node is to see to it if nobody else
        finishes it."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether the partition's records are loaded."""
        ...
