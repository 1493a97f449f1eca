"""Segments for tests of remote stores."""

from __future__ import annotations

from kafkacompat.ids import Uuid
from kafkacompat.ports import Disk
from kafkacompat.remote.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from kafkacompat.remote.ports import IndexType, LogSegmentData, RemoteStorageManager

PARTITION = TopicIdPartition(bytes(range(16)), "orders.v1", 3)
RECORDS = bytes(range(256)) * 16
SNAPSHOT = b"the producer snapshot"
CHECKPOINT = b"0\n1\n4 100\n"
CONTENTS = {
    IndexType.OFFSET: b"offsets",
    IndexType.TIMESTAMP: b"",
    IndexType.PRODUCER_SNAPSHOT: SNAPSHOT,
    IndexType.TRANSACTION: b"aborted",
    IndexType.LEADER_EPOCH: CHECKPOINT,
}


def segment(
    number: int = 1, start: int = 100, partition: TopicIdPartition = PARTITION, size: int = len(RECORDS)
) -> RemoteLogSegmentMetadata:
    """A copy that is begun, of RECORDS by default."""
    segment_id: Uuid = b"\xab" * 15 + bytes([number])
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, segment_id), start, start + 99, 5, 1, 6, size, ((4, start),)
    )


def files(
    disk: Disk, directory: str, *, records: bytes = RECORDS, has_aborted: bool = True
) -> LogSegmentData:
    """The files of a segment, as a log has them."""
    disk.make_directory(directory)
    paths: dict[object, str] = {}
    for name, content in (*CONTENTS.items(), ("log", records)):
        paths[name] = f"{directory}/00000000000000000100.{name if name == 'log' else name.name}"  # type: ignore[attr-defined]
        file = disk.open(paths[name], create=True)
        file.truncate(0)
        file.write_now(content)
        file.close()
    return LogSegmentData(
        paths["log"],
        paths[IndexType.OFFSET],
        paths[IndexType.TIMESTAMP],
        paths[IndexType.TRANSACTION] if has_aborted else None,
        paths[IndexType.PRODUCER_SNAPSHOT],
        CHECKPOINT,
    )


def fetched(
    store: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, start: int = 0, end: int | None = None
) -> bytes:
    stream = store.fetch_log_segment(metadata, start, end)
    try:
        return stream.read()
    finally:
        stream.close()


def fetched_index(
    store: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, index_type: IndexType
) -> bytes:
    stream = store.fetch_index(metadata, index_type)
    try:
        return stream.read()
    finally:
        stream.close()
