"""The segment that a cleaning writes: a log file and its indexes under names that end in `.cleaned`.

Batches are collected, written, indexed and made durable. These files are not read before they are renamed, and a start
removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.aborted import TXN_INDEX_SUFFIX
from kafkacompat.log.index import MAX_RELATIVE_OFFSET
from kafkacompat.log.log_segment import CLEANED_SUFFIX, LOG_SUFFIX, file_stem
from kafkacompat.log.offset_index import OffsetIndex
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkacompat.log.time_index import TimeIndex
from kafkacompat.log.transaction_index import AbortedTxn, TransactionIndex
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.filtering import Kept
    from kafkacompat.ports import Buffer, Disk

BUFFERS_MOST = 256


class CleanedSegment:
    """Writes a segment. Blocks; one thread. Raises OSError."""

    __slots__ = (
        "_base_offset",
        "_buffered",
        "_buffers",
        "_disk",
        "_file",
        "_flush_bytes",
        "_index_interval_bytes",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_offset_index",
        "_since_entry",
        "_stem",
        "_time_index",
        "_txn_index",
        "size",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int, flush_bytes: int
    ) -> None:
        """Files of an earlier attempt are overwritten."""
        self._disk = disk
        self._stem = file_stem(directory, base_offset)
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._flush_bytes = flush_bytes
        self._offset_index = OffsetIndex(base_offset)
        self._time_index = TimeIndex(base_offset)
        self._txn_index = TransactionIndex(base_offset)
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._since_entry = 0
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = base_offset
        self.size = 0
        self._file = disk.open(self._stem + LOG_SUFFIX + CLEANED_SUFFIX, create=True)
        self._file.truncate(0)

    def append(self, kept: Kept) -> None:
        if not 0 <= kept.last_offset - self._base_offset <= MAX_RELATIVE_OFFSET:
            raise BatchCorrupt(f"offset {kept.last_offset} in a segment at {self._base_offset}")
        size = len(kept.data)
        if kept.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms, self._max_timestamp_offset = kept.max_timestamp_ms, kept.last_offset
        if self._since_entry > self._index_interval_bytes:
            self._offset_index.append(kept.last_offset, self.size)
            self._time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset)
            self._since_entry = 0
        self._since_entry += size
        self.size += size
        # A memoryview would keep the whole read buffer in memory.
        self._buffers.append(bytes(kept.data) if isinstance(kept.data, memoryview) else kept.data)
        self._buffered += size
        if self._buffered >= self._flush_bytes or len(self._buffers) >= BUFFERS_MOST:
            self._write()

    def keep_entry(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction whose marker is in this segment."""
        self._txn_index.append(entry)

    def finish(self, modified_ms: int) -> list[str]:
        """Make everything durable. Returns the suffixes of the files, `.log` first."""
        self._write()
        if self.size:
            self._time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset)
        self._file.sync()
        self._file.close()
        suffixes = [LOG_SUFFIX]
        for index, suffix in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_INDEX_SUFFIX),
            (self._txn_index, TXN_INDEX_SUFFIX),
        ):
            if suffix == TXN_INDEX_SUFFIX and not index.size:
                continue
            file = self._disk.open(self._stem + suffix + CLEANED_SUFFIX, create=True)
            file.truncate(0)
            if index.size:
                file.write_now(index.data)
            file.sync()
            file.close()
            suffixes.append(suffix)
        self._disk.set_modified_ms(self._stem + LOG_SUFFIX + CLEANED_SUFFIX, modified_ms)
        return suffixes

    def discard(self) -> None:
        self._file.close()
        remove_cleaned(self._disk, self._stem)

    def _write(self) -> None:
        if self._buffers:
            self._file.write_now(*self._buffers)
            self._buffers.clear()
            self._buffered = 0


def remove_cleaned(disk: Disk, stem: str) -> None:
    """Remove the files of an abandoned cleaning at a base offset."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        path = stem + suffix + CLEANED_SUFFIX
        if disk.exists(path):
            disk.remove(path)
