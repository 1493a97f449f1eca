"""A remote store and its metadata in memory, and a tiered log on a memory disk."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig, ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, SMALL, TOPIC_ID, batch_of
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.remote.manager import RemoteLogManager
from kafkacompat.remote.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from kafkacompat.remote.metadata_cache import Piece, RemoteLogMetadataCache
from kafkacompat.remote.ports import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundException,
    RemoteStorageException,
)
from kafkacompat.tasks import Tasks

PARTITION = TopicIdPartition(TOPIC_ID, "t", 0)
OTHER_ID = b"\x08" * 16
REMADE = TopicIdPartition(OTHER_ID, "t", 0)
TIERED = dataclasses.replace(
    SMALL, remote_storage_enable=True, local_retention_bytes=1, retention_bytes=-1, retention_ms=-1
)


class MemoryStorage:
    """A store that reads the files of a disk. `fail` is called with each operation, and may raise."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.segments: dict[bytes, dict[Any, bytes]] = {}
        self.calls: list[str] = []
        self.fail: Callable[[str], None] = lambda operation: None
        self.custom: bytes | None = None

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        self.fail(operation)

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._called("copy")
        read = self._read
        self.segments[metadata.remote_log_segment_id.id] = {
            "log": read(data.log_segment),
            IndexType.OFFSET: read(data.offset_index),
            IndexType.TIMESTAMP: read(data.time_index),
            IndexType.PRODUCER_SNAPSHOT: read(data.producer_snapshot_index),
            IndexType.LEADER_EPOCH: data.leader_epoch_index,
        }
        if data.transaction_index is not None:
            parts = self.segments[metadata.remote_log_segment_id.id]
            parts[IndexType.TRANSACTION] = read(data.transaction_index)
        return self.custom

    def _read(self, path: str | bytes) -> bytes:
        if isinstance(path, bytes):
            return path
        try:
            return self._disk.read_bytes(path)
        except OSError as error:
            raise RemoteStorageException(str(error)) from None

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> BytesIO:
        self._called("fetch")
        return BytesIO(self._part(metadata, "log")[start_position:])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BytesIO:
        self._called(f"fetch {index_type.value}")
        return BytesIO(self._part(metadata, index_type))

    def _part(self, metadata: RemoteLogSegmentMetadata, part: Any) -> bytes:
        try:
            return self.segments[metadata.remote_log_segment_id.id][part]
        except KeyError:
            raise RemoteResourceNotFoundException(str(metadata.remote_log_segment_id)) from None

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._called("delete")
        self.segments.pop(metadata.remote_log_segment_id.id, None)

    def close(self) -> None:
        pass


class MemoryMetadata:
    """The metadata of all partitions, which is ready at once unless `ready` is false."""

    def __init__(self) -> None:
        self.caches: defaultdict[TopicIdPartition, RemoteLogMetadataCache] = defaultdict(
            RemoteLogMetadataCache
        )
        self.cache = self.caches[PARTITION]
        self.ready = True
        self.is_unfinished = True
        self.roles: list[str] = []
        self.states: list[str] = []
        self.deletion: list[tuple[str, int]] = []
        """The steps of deletions of partitions, and how many copies there were."""

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Deferred[None]:
        self.states.append(metadata.state.name)
        self.caches[metadata.topic_id_partition].add_copy_in_progress_segment(metadata)
        return Deferred.of(None)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Deferred[None]:
        self.states.append(update.state.name)
        self.caches[update.remote_log_segment_id.topic_id_partition].update_remote_log_segment_metadata(
            update
        )
        return Deferred.of(None)

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch_for_offset: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self.caches[partition].remote_log_segment_metadata(epoch_for_offset, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self.caches[partition].highest_offset_for_epoch(leader_epoch)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        if leader_epoch is None:
            return self.caches[partition].list_all_remote_log_segments()
        return self.caches[partition].list_remote_log_segments(leader_epoch)

    def pieces(self, partition: TopicIdPartition) -> Sequence[Piece]:
        return self.caches[partition].pieces()

    def piece_at(self, partition: TopicIdPartition, offset: int) -> Piece | None:
        return self.caches[partition].piece_at(offset)

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self.caches[partition].next_segment_with_txn_index(leader_epoch, offset)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        return self.caches[partition].remote_log_size(leader_epoch)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Deferred[None]:
        self.deletion.append((metadata.state.name, len(self.caches[metadata.topic_id_partition])))
        return Deferred.of(None)

    def is_deletion_unfinished(self, partition: TopicIdPartition) -> bool:
        return self.is_unfinished

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self.roles.append("leader" if leaders else "follower")

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self.roles.append("stopped")

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self.ready


class Tier:
    """A node with one tiered partition. Jobs of threads run when the test says so, or at once by `settle`."""

    def __init__(self, config: LogConfig = TIERED, **settings: str) -> None:
        self.disk = MemoryDisk()
        self.time = HandTime()
        self.time.wall_shift_ms = NOW_MS - self.time.now_ms()
        self.workers = HandWorkers()
        self.storage = MemoryStorage(self.disk)
        self.metadata = MemoryMetadata()
        self.moved: list[Any] = []
        self.log = self.open_log(config)
        self.core = SimpleNamespace(
            topic_id=TOPIC_ID,
            topic_partition=TopicPartition("t", 0),
            leader_epoch=0,
            is_leader=True,
            log=self.log,
        )
        self._ids = 0
        self.manager = RemoteLogManager(
            1,
            ServerConfig.from_properties(
                {
                    "process.roles": "broker",
                    "node.id": "1",
                    "controller.quorum.bootstrap.servers": "localhost:9093",
                    "controller.listener.names": "CONTROLLER",
                    **settings,
                }
            ),
            Tasks(self.time),
            self.time,
            self.workers,
            self.disk,
            self.storage,
            self.metadata,
            self._uuid,
            self.moved.append,
        )

    def _uuid(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def remade(self) -> SimpleNamespace:
        """Another topic of the same name, whose closed segments can be copied."""
        before = self.log
        self.log = self.open_log(TIERED, directory="/logs/t-0.remade", topic_id=OTHER_ID)
        self.fill(3)
        core = SimpleNamespace(**(vars(self.core) | {"topic_id": OTHER_ID, "log": self.log}))
        self.log = before
        return core

    def open_log(
        self,
        config: LogConfig,
        log_start_offset: int | None = None,
        *,
        directory: str = DIRECTORY,
        topic_id: bytes = TOPIC_ID,
    ) -> UnifiedLog:
        parts = open_directory(
            self.disk,
            directory,
            SMALL,
            NOW_MS,
            clean=True,
            log_start_offset=log_start_offset or 0,
            may_be_tiered=log_start_offset is not None,
        )
        log = UnifiedLog(
            self.disk,
            directory,
            TopicPartition("t", 0),
            topic_id,
            SMALL,
            parts,
            LogServices(remote_storage=True),
        )
        log.config = config
        return log

    def fill(self, segments: int = 4, *, epoch: int = 0) -> None:
        """Ten records in five batches in each new segment."""
        for _ in range(segments):
            if self.log.log_end_offset:
                self.log.roll(self.log.log_end_offset, NOW_MS)
            for _ in range(5):
                start = self.log.log_end_offset
                values = [b"%d" % start, b"%d" % (start + 1)]
                self.log.append_as_leader(batch_of(values, NOW_MS + start), epoch, NOW_MS)
        self.log.set_high_watermark(self.log.log_end_offset)

    def settle(self, steps: int = 40) -> None:
        """Run the jobs of threads, and what is due at once, until nothing is left."""
        for _ in range(steps):
            self.time.advance(0)
            self.workers.run_all()

    def pass_on(self, delay_ms: int = 30_000) -> None:
        """The time of the next pass comes."""
        self.time.advance(delay_ms)
        self.settle()

    def lead(self) -> None:
        self.manager.role_taken(self.core)
        self.settle()

    def starts(self) -> list[int]:
        return sorted(each.start_offset for each in self.metadata.cache.list_all_remote_log_segments())
