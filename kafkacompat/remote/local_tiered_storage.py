"""A remote store in a folder, with the names and contents of Apache Kafka's LocalTieredStorage: each of the two reads what the
other has written.

Below the folder is `kafka-tiered-storage`, in it a folder for each partition (`topic-partition-topicId`), in that the files of each
copy (`startOffset-segmentId.suffix`). Files are written elsewhere and renamed, so a name never has a part of its contents.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkacompat.ids import uuid_to_text
from kafkacompat.remote.ports import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Disk, File
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata

ROOT = "kafka-tiered-storage"
UNFINISHED = "kafka-tiered-storage.tmp"
"""Beside the root, because Apache Kafka's tools read every name below it."""
SEGMENT = ".log"
SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}
PIECE = 1 << 20
"""Bytes that are copied at a time."""
_LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
)


class LocalTieredStorage:
    """A RemoteStorageManager. `directory`: rsm.config.dir. It and what is below is made with the first copy."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory.rstrip("/") or "/"
        self._root = f"{directory.rstrip('/')}/{ROOT}"
        self._unfinished = f"{directory.rstrip('/')}/{UNFINISHED}"

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        try:
            self._store(metadata, data)
        except Exception:
            # The next attempt has another id. In a full folder, what is left of this one would take its room.
            with suppress(RemoteStorageException):
                self.delete_log_segment_data(metadata)
            raise
        return None

    def _store(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        with _told(f"segment {metadata.remote_log_segment_id} cannot be stored"):
            folder = self._folder(metadata)
            for each in (self._directory, self._root, self._unfinished, folder):
                self._disk.make_directory(each)
            sources: list[tuple[str, str | bytes]] = [
                (SUFFIXES[IndexType.OFFSET], data.offset_index),
                (SUFFIXES[IndexType.TIMESTAMP], data.time_index),
                (SUFFIXES[IndexType.LEADER_EPOCH], data.leader_epoch_index),
                (SUFFIXES[IndexType.PRODUCER_SNAPSHOT], data.producer_snapshot_index),
            ]
            if data.transaction_index is not None:
                sources.append((SUFFIXES[IndexType.TRANSACTION], data.transaction_index))
            for suffix, source in (*sources, (SEGMENT, data.log_segment)):
                unfinished = self._unfinished_file(metadata, suffix)
                self._write(unfinished, source)
                self._disk.rename(unfinished, self._file(metadata, suffix))
            self._disk.sync_directory(folder)
            # The folder may be new, also if another copy has made it.
            self._disk.sync_directory(self._root)
            self._disk.sync_directory(self._directory)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> _FileStream:
        with _told(f"segment {metadata.remote_log_segment_id} cannot be read"):
            file = self._disk.open(self._file(metadata, SEGMENT))
            size = file.size()
            if size < metadata.segment_size_in_bytes:
                raise RemoteStorageException(
                    f"segment {metadata.remote_log_segment_id} has {size} bytes of {metadata.segment_size_in_bytes}"
                )
            return _FileStream(
                file, start_position, size if end_position is None else min(size, end_position + 1)
            )

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> _FileStream:
        with _told(
            f"the {index_type.value} index of segment {metadata.remote_log_segment_id} cannot be read"
        ):
            file = self._disk.open(self._file(metadata, SUFFIXES[index_type]))
            return _FileStream(file, 0, file.size())

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        with _told(f"segment {metadata.remote_log_segment_id} cannot be deleted"):
            # The records go last, so that whoever looks into the folder sees no index without its segment for long.
            for suffix in (*SUFFIXES.values(), SEGMENT):
                for path in (self._unfinished_file(metadata, suffix), self._file(metadata, suffix)):
                    with suppress(FileNotFoundError, NotADirectoryError):
                        self._disk.remove(path)
            with suppress(FileNotFoundError):
                self._disk.sync_directory(self._folder(metadata))

    def close(self) -> None:
        """There is nothing to give up."""

    def _folder(self, metadata: RemoteLogSegmentMetadata) -> str:
        topic_id, topic, partition = metadata.topic_id_partition
        return f"{self._root}/{topic}-{partition}-{uuid_to_text(topic_id)}"

    def _file(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        segment_id = uuid_to_text(metadata.remote_log_segment_id.id)
        return f"{self._folder(metadata)}/{metadata.start_offset:020}-{segment_id}{suffix}"

    def _unfinished_file(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        return f"{self._unfinished}/{uuid_to_text(metadata.remote_log_segment_id.id)}{suffix}"

    def _write(self, path: str, source: str | bytes) -> None:
        """The contents of a file, or these bytes, synced."""
        target = self._disk.open(path, create=True)
        try:
            target.truncate(0)
            if isinstance(source, bytes):
                target.write_now(source)
            else:
                self._copy(source, target)
            target.sync()
        finally:
            target.close()

    def _copy(self, source: str, target: File) -> None:
        try:
            file = self._disk.open(source)
        except FileNotFoundError as error:
            raise RemoteStorageException(f"{source} is missing") from error
        size, position = file.size(), 0
        while position < size:
            piece = file.read_cold(position, min(PIECE, size - position))
            if not piece:
                raise RemoteStorageException(f"{source} has become shorter")
            position += target.write_now(piece)


class _FileStream:
    """A RemoteInputStream of a piece of a file. The file closes when nothing reads it any more."""

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file: File | None = file
        self._position = position
        self._end = end

    def read(self, size: int = -1, /) -> bytes:
        left = max(self._end - self._position, 0)
        view = memoryview(bytearray(left if size < 0 else min(size, left)))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        wanted = min(len(buffer), self._end - self._position)
        if self._file is None or wanted <= 0:
            return 0
        with _told(f"{self._file.path} cannot be read"):
            got = self._file.read_into(self._position, buffer[:wanted])
        if got < wanted:
            raise RemoteStorageException(f"{self._file.path} has become shorter")
        self._position += wanted
        return wanted

    def close(self) -> None:
        self._file = None


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of the disk as those of a remote store."""
    try:
        yield
    except FileNotFoundError as error:
        raise RemoteResourceNotFoundException(f"{what}: {error}") from error
    except OSError as error:
        kind = RemoteStorageException if error.errno in _LASTING else RetriableRemoteStorageException
        raise kind(f"{what}: {error}") from error
