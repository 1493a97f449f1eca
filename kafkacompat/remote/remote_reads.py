"""Reads in one remote segment: records from an offset on, the first record at a time, aborted transactions.

Everything here blocks, in threads of the remote storage. The remote store is not trusted: a batch counts only if it lies within
the segment, in order, with a valid CRC and the leader epoch that the metadata have for it. An index only saves bytes; where it
leads to no batch, the segment is read from its beginning. So it is where offsets are missing: only a second reading tells whether
a cleaning has removed them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkacompat.log.index import AbortedTxn, IndexCorrupt, OffsetIndex, TimeIndex, TransactionIndex
from kafkacompat.log.lookup import before_which_none_is_as_late
from kafkacompat.log.replay import apply_batch
from kafkacompat.ports import TimestampOffset
from kafkacompat.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    OFFSET_AND_LENGTH,
    BatchCorrupt,
    BatchHeader,
    has_valid_crc,
    iterate_batches,
    parse_header,
)
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.read import find_by_time
from kafkacompat.records.record import RecordMalformed
from kafkacompat.remote.manager_core import epoch_for_offset
from kafkacompat.remote.ports import IndexType, RemoteStorageException
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
    from kafkacompat.remote.ports import RemoteInputStream, RemoteStorageManager
    from kafkacompat.remote.remote_index_cache import RemoteIndexCache

T = TypeVar("T")
DAMAGE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
MAGIC_WITH_EPOCH = 2
SKIPPED_AT_ONCE = 64 * 1024
REPLAYED_AT_ONCE = 1 << 20
LEAST_BATCH = LOG_OVERHEAD + 14


class RemoteRecords(NamedTuple):
    """Whole batches."""

    records: bytes
    next_offset: int
    """The offset after the last record, or of the next batch that was not taken."""


class _Found(NamedTuple):
    records: RemoteRecords | None
    gaps: frozenset[int]
    """The first offset after each gap."""


class RemoteSegmentReader:
    """Reads in remote segments. Used by several threads at once."""

    def __init__(self, storage: RemoteStorageManager, indexes: RemoteIndexCache) -> None:
        self._storage = storage
        self._indexes = indexes

    def read(
        self,
        metadata: RemoteLogSegmentMetadata,
        offset: int,
        end_offset: int,
        max_bytes: int,
        minimum_one_batch: bool,
    ) -> RemoteRecords | None:
        """Batches from the one that contains the offset on, up to an end. None if the segment has none at or after the
        offset: its last records may have been compacted away. Raises RemoteStorageException."""

        def read(position: int) -> _Found:
            return self._read_from(metadata, position, offset, end_offset, max_bytes, minimum_one_batch)

        found = _read_at(metadata, self._position_of(metadata, offset), read)
        if found.gaps:
            again = _read_at(metadata, 0, read)
            if again.gaps - found.gaps:
                raise _damaged(
                    metadata, BatchCorrupt(f"it has other offsets from {offset} on in each reading")
                )
            if not again.gaps:
                self._indexes.remove([metadata.remote_log_segment_id.id])
            found = again
        return found.records

    def _read_from(
        self,
        metadata: RemoteLogSegmentMetadata,
        position: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        minimum_one_batch: bool,
    ) -> _Found:
        taken: list[bytes] = []
        gaps: set[int] = set()
        size, end = 0, offset
        with self._batches(metadata, position) as batches:
            for batch in batches:
                header = batch.header
                if header.last_offset < offset:
                    continue
                if header.last_offset >= end_offset:
                    break
                if header.base_offset > end and header.magic >= MAGIC_WITH_EPOCH:
                    gaps.add(header.base_offset)
                if size + header.size > max_bytes and (size or not minimum_one_batch):
                    records = RemoteRecords(b"".join(taken), end if size else header.base_offset)
                    return _Found(records, frozenset(gaps))
                taken.append(batch.whole())
                size += header.size
                end = header.last_offset + 1
        if not size:
            return _Found(None, frozenset((metadata.end_offset + 1,)))
        return _Found(RemoteRecords(b"".join(taken), end), frozenset(gaps))

    def replay(
        self, metadata: RemoteLogSegmentMetadata, state: ProducerStateManager, end_offset: int
    ) -> None:
        """Apply the batches from the state's end offset up to an end. Raises RemoteStorageException."""
        while state.end_offset < end_offset:
            found = self.read(metadata, state.end_offset, end_offset, REPLAYED_AT_ONCE, True)
            if found is None:
                break
            try:
                for header in iterate_batches(found.records):
                    batch = memoryview(found.records)[header.position : header.position + header.size]
                    apply_batch(state, header, batch, None)
            except DAMAGE as damage:
                raise _damaged(metadata, damage) from None
        state.end_offset = end_offset

    def find_by_timestamp(
        self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, least_offset: int
    ) -> TimestampOffset | None:
        """The first record at or after a timestamp and at or above an offset. Raises RemoteStorageException."""
        try:
            times = TimeIndex(metadata.start_offset, self._indexes.get(metadata, IndexType.TIMESTAMP))
            times.check()
            before = before_which_none_is_as_late(times, timestamp_ms)
        except (IndexCorrupt, ValueError):
            before = -1
        return _read_at(
            metadata,
            self._position_of(metadata, max(before, least_offset)),
            lambda position: self._find_from(metadata, position, timestamp_ms, least_offset),
        )

    def _find_from(
        self, metadata: RemoteLogSegmentMetadata, position: int, timestamp_ms: int, least_offset: int
    ) -> TimestampOffset | None:
        with self._batches(metadata, position) as batches:
            for batch in batches:
                header = batch.header
                if header.max_timestamp_ms < timestamp_ms or header.last_offset < least_offset:
                    continue
                found = at_once(find_by_time(batch.whole(), header, timestamp_ms, least_offset))
                if found is not None:
                    return TimestampOffset(*found, header.leader_epoch)
        return None

    def aborted_transactions(
        self, metadata: RemoteLogSegmentMetadata, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTxn], bool]:
        """Those that overlap the range, as far as they ended in this segment, and whether later segments can add none. Raises
        RemoteStorageException: without them, aborted records would be taken for committed ones."""
        data = self._indexes.get(metadata, IndexType.TRANSACTION)
        try:
            index = TransactionIndex(metadata.start_offset, data)
            index.check()
            return index.collect(fetch_offset, upper_bound_offset)
        except (IndexCorrupt, ValueError) as damage:
            self._indexes.remove([metadata.remote_log_segment_id.id])
            raise _damaged(metadata, damage) from None

    def _position_of(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        data = self._indexes.get(metadata, IndexType.OFFSET)
        try:
            index = OffsetIndex(metadata.start_offset, data)
            index.check(metadata.segment_size_in_bytes)
            return index.lookup(offset)[1]
        except (IndexCorrupt, ValueError):
            self._indexes.remove([metadata.remote_log_segment_id.id])
            return 0

    @contextmanager
    def _batches(self, metadata: RemoteLogSegmentMetadata, position: int) -> Iterator[Iterator[_Batch]]:
        stream = self._storage.fetch_log_segment(metadata, position)
        try:
            yield _batches_in(stream, metadata, position)
        finally:
            stream.close()


class _Batch:
    """A batch whose header is read. The rest is read by `whole`, or passed over."""

    def __init__(self, stream: RemoteInputStream, header: BatchHeader, head: bytes) -> None:
        self._stream = stream
        self.header = header
        self._head = head
        self.is_read = False

    def whole(self) -> bytes:
        self.is_read = True
        batch = self._head + _exactly(self._stream, self.header.size - len(self._head))
        if not has_valid_crc(batch, self.header):
            raise BatchCorrupt(f"the CRC of the batch at offset {self.header.base_offset} is wrong")
        return batch

    def pass_over(self) -> None:
        if not self.is_read:
            left = self.header.size - len(self._head)
            while left:
                left -= len(_exactly(self._stream, min(left, SKIPPED_AT_ONCE)))


def _batches_in(
    stream: RemoteInputStream, metadata: RemoteLogSegmentMetadata, position: int
) -> Iterator[_Batch]:
    least_offset = metadata.start_offset
    left = metadata.segment_size_in_bytes - position
    while left >= LEAST_BATCH:
        head = _exactly(stream, LEAST_BATCH)
        size = LOG_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(head)[1]
        if not LEAST_BATCH <= size <= left:
            raise BatchCorrupt(f"a batch of {size} bytes where {left} are left")
        head += _exactly(stream, min(size, HEADER_SIZE) - len(head))
        header = parse_header(head)
        if not least_offset <= header.last_offset <= metadata.end_offset:
            raise BatchCorrupt(
                f"a batch up to offset {header.last_offset}, expected from {least_offset} to {metadata.end_offset}"
            )
        if header.magic >= MAGIC_WITH_EPOCH:
            _check_uncovered(metadata, header, least_offset)
        batch = _Batch(stream, header, head)
        yield batch
        batch.pass_over()
        least_offset = header.last_offset + 1
        left -= size


def _check_uncovered(metadata: RemoteLogSegmentMetadata, header: BatchHeader, least_offset: int) -> None:
    """The fields that the CRC does not cover. Of what lies below the log start the metadata have no epoch."""
    epoch = epoch_for_offset(metadata.segment_leader_epochs, header.last_offset)
    if header.base_offset < least_offset or epoch not in (None, header.leader_epoch):
        raise BatchCorrupt(
            f"a batch of epoch {header.leader_epoch} at offset {header.base_offset}, expected epoch {epoch} from {least_offset} on"
        )


def _exactly(stream: RemoteInputStream, size: int) -> bytes:
    data = stream.read(size) if size else b""
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        data = stream.read(missing)
        if not data:
            raise BatchCorrupt(f"the segment ends {missing} bytes too early")
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _read_at(metadata: RemoteLogSegmentMetadata, position: int, read: Callable[[int], T]) -> T:
    """What is read from a position that an index has given, or else from the segment's beginning."""
    try:
        return read(position)
    except DAMAGE as damage:
        if not position:
            raise _damaged(metadata, damage) from None
    try:
        return read(0)
    except DAMAGE as damage:
        raise _damaged(metadata, damage) from None


def _damaged(metadata: RemoteLogSegmentMetadata, damage: Exception) -> RemoteStorageException:
    return RemoteStorageException(f"remote segment {metadata.remote_log_segment_id} is damaged: {damage}")
