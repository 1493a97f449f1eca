"""Indexes of remote segments, fetched once and kept in bounded memory (RemoteIndexCache). Setting:
remote.log.index.file.cache.total.size.bytes.

Kafka keeps them in files. Here they are in memory: whoever reads a cold partition needs the indexes of one segment at a time.
Used by several threads at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING

from kafkacompat.remote.ports import IndexType, RemoteStorageException

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
    from kafkacompat.remote.ports import RemoteStorageManager

MOST_BYTES = 64 * 1024 * 1024
"""More is not kept, whatever the setting says: it is memory. That is the indexes of a dozen segments of 1 GiB."""
INDEX_MOST_BYTES = 64 * 1024 * 1024
"""A longer index is not believed."""


class RemoteIndexCache:
    def __init__(self, storage: RemoteStorageManager, max_bytes: Callable[[], int]) -> None:
        """`max_bytes` gives the setting in force. A lower one takes effect with the next index that is fetched."""
        self._storage = storage
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Uuid, IndexType], bytes] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """The index. Blocks. Raises RemoteStorageException."""
        key = metadata.remote_log_segment_id.id, index_type
        with self._lock:
            data = self._kept.get(key)
            if data is not None:
                self._kept.move_to_end(key)
                return data
        data = fetch_whole(self._storage, metadata, index_type)
        with self._lock:
            self._drop(key)
            self._kept[key] = data
            self._bytes += len(data)
            most = min(self._max_bytes(), MOST_BYTES)
            while self._bytes > most:
                self._drop(next(iter(self._kept)))
        return data

    def remove(self, ids: Iterable[Uuid]) -> None:
        """Forget the indexes of deleted segments."""
        with self._lock:
            for each in ids:
                for index_type in IndexType:
                    self._drop((each, index_type))

    def _drop(self, key: tuple[Uuid, IndexType]) -> None:
        data = self._kept.pop(key, None)
        if data is not None:
            self._bytes -= len(data)


def fetch_whole(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, index_type: IndexType
) -> bytes:
    """Blocks. Raises RemoteStorageException."""
    stream = storage.fetch_index(metadata, index_type)
    try:
        parts = []
        size = 0
        while data := stream.read(1 << 20):
            size += len(data)
            if size > INDEX_MOST_BYTES:
                raise RemoteStorageException(
                    f"the {index_type.value} index of {metadata.remote_log_segment_id} has no end"
                )
            parts.append(data)
        return b"".join(parts)
    finally:
        stream.close()
