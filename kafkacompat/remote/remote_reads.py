"""Reads in one remote segment: records from an offset on, the first record at a time, aborted transactions.

Everything here blocks, in threads of the remote storage. The remote store is not trusted: a batch counts only if it lies within
the segment, in order, with a valid CRC and the leader epoch that the metadata have for it. An index only saves bytes; where it
leads to another batch or none, the segment is read from its beginning. Where offsets are missing, only a second reading
tells whether a cleaning has removed them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from kafkacompat.log.index import (
    MAX_OFFSET,
    AbortedTxn,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from kafkacompat.log.lookup import before_which_none_is_as_late
from kafkacompat.log.replay import apply_batch
from kafkacompat.ports import TimestampOffset
from kafkacompat.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    OFFSET_AND_LENGTH,
    BatchCorrupt,
    BatchHeader,
    has_valid_crc,
    iterate_batches,
    parse_header,
)
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.crc import crc32c
from kafkacompat.records.read import find_by_time
from kafkacompat.records.record import RecordMalformed
from kafkacompat.remote.manager_core import epoch_for_offset
from kafkacompat.remote.metadata import has_mark
from kafkacompat.remote.ports import IndexType, RemoteStorageException
from kafkacompat.remote.reused_buffers import ReusedBuffers
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
    from kafkacompat.remote.ports import RemoteInputStream, RemoteStorageManager
    from kafkacompat.remote.remote_index_cache import RemoteIndexCache

T = TypeVar("T")
DAMAGE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
MAGIC_WITH_EPOCH = 2
AHEAD = 64 * 1024
"""Bytes that are read at least, and skipped at a time."""
AHEAD_MAX = 2 << 20
RANGE_MAX = 32 << 20
"""Bytes that one request asks of the store. What was asked for and is not read costs a connection."""
INDEXED_EVERY = 4096
"""Bytes between two entries of an offset index by default (index.interval.bytes). A read begins up to so many bytes too early."""
REPLAYED_AT_ONCE = 1 << 20
LEAST_BATCH = LOG_OVERHEAD + 14
_FRONT = struct.Struct(">qiibIhi")
"""The first fields of a header, up to the last offset delta."""
_NOTHING = memoryview(b"")


class RemoteRecords(NamedTuple):
    """Whole batches."""

    records: memoryview
    next_offset: int
    """The offset after the last record, or of the next batch that was not taken."""


class _Found(NamedTuple):
    records: RemoteRecords | None
    gaps: frozenset[int]
    """The first offset after each gap."""
    first: int
    """The last offset of the first batch that was read. -1: none was."""


class RemoteSegmentReader:
    """Reads in remote segments. Used by several threads at once."""

    def __init__(self, storage: RemoteStorageManager, indexes: RemoteIndexCache) -> None:
        self._storage = storage
        self._indexes = indexes
        self._buffers = ReusedBuffers()

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
        if not metadata.segment_size_in_bytes:
            return None

        indexed, position, before = self._indexed(metadata, offset)

        def read(position: int) -> _Found:
            # The header of the batch behind tells that it is too large.
            ahead = before + max_bytes + HEADER_SIZE
            return self._read_from(
                metadata, position, ahead, offset, end_offset, max_bytes, minimum_one_batch
            )

        found = _read_at(metadata, position, read)
        if found.gaps:
            again = _read_at(metadata, position if found.first == indexed else 0, read)
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
        ahead: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        minimum_one_batch: bool,
    ) -> _Found:
        taken = _Taken()
        gaps: set[int] = set()
        size, end, first = 0, offset, -1
        with self._batches(metadata, position, ahead) as batches:
            for batch in batches:
                header = batch.header
                first = header.last_offset if first < 0 else first
                if header.last_offset < offset:
                    continue
                if header.last_offset >= end_offset:
                    break
                if header.base_offset > end and header.magic >= MAGIC_WITH_EPOCH:
                    gaps.add(header.base_offset)
                if size + header.size > max_bytes and (size or not minimum_one_batch):
                    records = RemoteRecords(taken.records(), end if size else header.base_offset)
                    return _Found(records, frozenset(gaps), first)
                taken.add(batch)
                size += header.size
                end = header.last_offset + 1
                if size < max_bytes and end < end_offset:
                    more, end = batches.plain(max_bytes - size, end_offset)
                    taken.extend(more)
                    size += more
                if size >= max_bytes or end >= end_offset:
                    break
        if not size:
            return _Found(None, frozenset((metadata.end_offset + 1,)), first)
        return _Found(RemoteRecords(taken.records(), end), frozenset(gaps), first)

    def batches(
        self, metadata: RemoteLogSegmentMetadata, start_offset: int, next_offset: int
    ) -> Iterator[memoryview]:
        """All batches between two offsets, from the first to the last byte of the segment. Raises RemoteStorageException."""
        if not metadata.segment_size_in_bytes:
            return
        try:
            with self._batches(metadata, 0, metadata.segment_size_in_bytes) as batches:
                for batch in batches:
                    data = batch.whole()
                    if start_offset <= batch.header.base_offset < next_offset:
                        yield data
        except DAMAGE as damage:
            raise _damaged(metadata, damage) from None

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
                    batch = found.records[header.position : header.position + header.size]
                    apply_batch(state, header, batch, None)
            except DAMAGE as damage:
                raise _damaged(metadata, damage) from None
        state.end_offset = end_offset

    def find_by_timestamp(
        self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, least_offset: int
    ) -> TimestampOffset | None:
        """The first record at or after a timestamp and at or above an offset. Raises RemoteStorageException."""
        if not metadata.segment_size_in_bytes:
            return None
        try:
            times = TimeIndex.over(metadata.start_offset, self._indexes.get(metadata, IndexType.TIMESTAMP))
            times.check()
            before = before_which_none_is_as_late(times, timestamp_ms)
        except (IndexCorrupt, ValueError):
            before = -1
        return _read_at(
            metadata,
            self._indexed(metadata, max(before, least_offset))[1],
            lambda position: self._find_from(metadata, position, timestamp_ms, least_offset),
        )

    def _find_from(
        self, metadata: RemoteLogSegmentMetadata, position: int, timestamp_ms: int, least_offset: int
    ) -> TimestampOffset | None:
        with self._batches(metadata, position, AHEAD) as batches:
            for batch in batches:
                header = batch.header
                if header.max_timestamp_ms < timestamp_ms or header.last_offset < least_offset:
                    continue
                found = at_once(find_by_time(batch.whole(), header, timestamp_ms, least_offset))
                if found is not None:
                    return TimestampOffset(*found, header.leader_epoch)
        return None

    def aborted_transactions(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        upper_bound_offset: int,
        most: int = MAX_OFFSET,
    ) -> tuple[list[AbortedTxn], bool]:
        """Those that overlap the range, as far as they ended in this segment, and whether later segments can add none. `most`: as
        `TransactionIndex.collect` has it. Raises RemoteStorageException: without them, aborted records would be taken for
        committed ones."""
        data = self._indexes.get(metadata, IndexType.TRANSACTION)
        try:
            index = TransactionIndex.over(metadata.start_offset, data)
            index.check()
            return index.collect(fetch_offset, upper_bound_offset, most)
        except (IndexCorrupt, ValueError) as damage:
            self._indexes.remove([metadata.remote_log_segment_id.id])
            raise _damaged(metadata, damage) from None

    def _indexed(self, metadata: RemoteLogSegmentMetadata, offset: int) -> tuple[int, int, int]:
        """The last offset of a batch that is at or before this one, the position of that batch, and so many bytes as probably
        lie between it and the batch with this offset."""
        data = self._indexes.get(metadata, IndexType.OFFSET)
        try:
            index = OffsetIndex.over(metadata.start_offset, data)
            index.check(metadata.segment_size_in_bytes)
            last_offset, position = index.lookup(offset)
            following = position if offset == metadata.start_offset else index.position_after(offset)
        except (IndexCorrupt, ValueError):
            self._indexes.remove([metadata.remote_log_segment_id.id])
            return -1, 0, INDEXED_EVERY
        return last_offset, position, INDEXED_EVERY if following < 0 else max(following - position, 0)

    @contextmanager
    def _batches(self, metadata: RemoteLogSegmentMetadata, position: int, ahead: int) -> Iterator[_Batches]:
        """The batches from a position on, which are probably read for so many bytes."""
        fetch = partial(self._storage.fetch_log_segment, metadata)
        segment = _Ahead(fetch, position, metadata, ahead, self._buffers)
        try:
            yield _Batches(segment, metadata)
        finally:
            segment.close()


def records_before(records: memoryview, end_offset: int) -> memoryview:
    """The batches before the first one that begins at the offset or after it. The first batch at least."""
    for header in iterate_batches(records):
        if header.position and header.base_offset >= end_offset:
            return records[: header.position]
    return records


class _Ahead:
    """A segment from a position on, read in pieces that have many batches each, and asked for in ranges that are probably read
    whole. The first range has `ahead` bytes, the next ones grow."""

    __slots__ = (
        "_ahead",
        "_buffers",
        "_end",
        "_fetch",
        "_following",
        "_position",
        "_range",
        "_room",
        "_stream",
        "_stream_end",
        "at",
        "filled",
        "piece",
    )

    def __init__(
        self,
        fetch: Callable[[int, int], RemoteInputStream],
        position: int,
        metadata: RemoteLogSegmentMetadata,
        ahead: int,
        buffers: ReusedBuffers,
    ) -> None:
        """`fetch`: the bytes from one position to another, both inclusive."""
        self._fetch = fetch
        self._buffers = buffers
        self._position = self._stream_end = position
        """Up to where the segment is read, and where the present range ends."""
        self._end = metadata.segment_size_in_bytes
        self._stream: RemoteInputStream | None = None
        self._ahead = min(ahead, AHEAD_MAX)
        self._range, self._following = ahead, AHEAD
        self._room = self.piece = _NOTHING
        """The same memory, to write and to read."""
        self.at = 0
        """Where in the piece the next batch begins."""
        self.filled = 0
        """The end of what is read of the piece."""

    @property
    def left(self) -> int:
        return self.filled - self.at + self._end - self._position

    def need(self, count: int) -> None:
        """Have so many bytes of those that are left in the piece."""
        if self.filled - self.at >= count:
            return
        if self.at + count > len(self.piece):
            self._begin_piece(count)
        while (got := self.filled - self.at) < count:
            if not self._read(count - got):
                raise BatchCorrupt(f"the segment ends {count - got} bytes too early")

    def _begin_piece(self, count: int) -> None:
        """With room for so many bytes, of which those that are read already move there."""
        rest = self.piece[self.at : self.filled]
        size = min(max(count, len(rest) + self._ahead), self.left)
        self._ahead = AHEAD
        room = self._buffers.take(max(size, count))
        room[: len(rest)] = rest
        self._room, self.piece = room, room.toreadonly()
        self.at, self.filled = 0, len(rest)

    def _read(self, least: int) -> int:
        """Read some bytes of the present range, or else of the next one, which has at least so many."""
        room = self._room[self.filled :]
        if self._stream is None or self._position >= self._stream_end:
            self.close()
            size = max(least, len(room), min(self._range, RANGE_MAX))
            self._stream_end = min(self._position + size, self._end)
            self._stream = self._fetch(self._position, self._stream_end - 1)
            self._range, self._following = self._following, 2 * self._following
        got = self._stream.readinto(room[: self._stream_end - self._position])
        self._position += got
        self.filled += got
        return got

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def skip(self, count: int) -> None:
        while count:
            step = min(count, self.filled - self.at)
            self.at += step
            count -= step
            if count:
                self.need(min(count, AHEAD))


class _Batch:
    """A batch whose header is read. The rest is read by `whole`, or passed over."""

    __slots__ = ("_ahead", "header")

    def __init__(self, ahead: _Ahead, header: BatchHeader) -> None:
        self._ahead = ahead
        self.header = header

    def place(self) -> tuple[memoryview, int, int]:
        """A piece of the segment that has the whole batch, and its begin and end there."""
        ahead, header = self._ahead, self.header
        ahead.need(header.size)
        piece, begin = ahead.piece, ahead.at
        end = begin + header.size
        if not has_valid_crc(piece[begin:end], header):
            raise BatchCorrupt(f"the CRC of the batch at offset {header.base_offset} is wrong")
        return piece, begin, end

    def whole(self) -> memoryview:
        piece, begin, end = self.place()
        return piece[begin:end]


class _Taken:
    """Batches one after the other. They are copied only if they come from several pieces, or keep much more than themselves."""

    __slots__ = ("_begin", "_end", "_parts", "_piece")

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._piece, self._begin, self._end = _NOTHING, 0, 0

    def add(self, batch: _Batch) -> None:
        piece, begin, end = batch.place()
        if piece is not self._piece:
            self._close()
            self._piece, self._begin = piece, begin
        self._end = end

    def extend(self, count: int) -> None:
        """So many bytes behind the last batch, in the same piece."""
        self._end += count

    def _close(self) -> None:
        if self._end > self._begin:
            self._parts.append(self._piece[self._begin : self._end])

    def records(self) -> memoryview:
        self._close()
        if len(self._parts) == 1 and 2 * len(self._parts[0]) >= len(self._piece.obj):  # type: ignore[arg-type]  # a buffer
            return self._parts[0]
        return memoryview(b"".join(self._parts))


class _Batches:
    """The batches of a segment in order. `next` passes over the batch that it gave before."""

    __slots__ = ("_ahead", "_given", "_least_offset", "_metadata")

    def __init__(self, ahead: _Ahead, metadata: RemoteLogSegmentMetadata) -> None:
        self._ahead = ahead
        self._metadata = metadata
        self._least_offset = metadata.start_offset
        self._given = 0
        """Bytes of the batch that was given."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Batch:
        ahead, metadata = self._ahead, self._metadata
        self._pass_over()
        left, least_offset = ahead.left, self._least_offset
        if left < LEAST_BATCH:
            raise StopIteration
        ahead.need(LEAST_BATCH)
        size = LOG_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(ahead.piece, ahead.at)[1]
        if not LEAST_BATCH <= size <= left:
            raise BatchCorrupt(f"a batch of {size} bytes where {left} are left")
        ahead.need(min(size, HEADER_SIZE))
        if size < HEADER_SIZE and ahead.piece[ahead.at + MAGIC_POSITION] >= MAGIC_WITH_EPOCH:
            raise BatchCorrupt(f"a batch of {size} bytes is shorter than its header")
        header = parse_header(ahead.piece, ahead.at)
        header.position = 0  # in what `whole` returns
        if not least_offset <= header.last_offset <= metadata.end_offset:
            raise BatchCorrupt(
                f"a batch up to offset {header.last_offset}, expected from {least_offset} to {metadata.end_offset}"
            )
        if header.magic >= MAGIC_WITH_EPOCH:
            _check_uncovered(metadata, header, least_offset)
        self._given = size
        self._least_offset = header.last_offset + 1
        return _Batch(ahead, header)

    def _pass_over(self) -> None:
        given, self._given = self._given, 0
        self._ahead.skip(given)

    def plain(self, most: int, end_offset: int) -> tuple[int, int]:
        """Pass over the batches that follow without a gap, lie in the piece and are right, up to an end and so many bytes.
        Returns their bytes, and the offset after them. `next` judges the first one that is anything else."""
        self._pass_over()
        ahead, metadata = self._ahead, self._metadata
        piece, begin = ahead.piece, ahead.at
        end, offset = min(begin + most, ahead.filled), self._least_offset
        epoch = epoch_for_offset(metadata.segment_leader_epochs, offset)
        for _, start_offset in metadata.segment_leader_epochs:
            if start_offset > offset:
                end_offset = min(end_offset, start_offset)
                break
        end_offset = min(end_offset, metadata.end_offset + 1)
        unpack, at = _FRONT.unpack_from, begin
        while end - at >= HEADER_SIZE:
            base_offset, length, its_epoch, magic, crc, _, delta = unpack(piece, at)
            following = at + LOG_OVERHEAD + length
            if (
                base_offset != offset
                or its_epoch != epoch
                or magic != MAGIC_WITH_EPOCH
                or not 0 <= delta < end_offset - offset
                or not at + HEADER_SIZE <= following <= end
                or crc32c(piece[at + ATTRIBUTES_POSITION : following]) != crc
            ):
                break
            at, offset = following, offset + delta + 1
        ahead.at, self._least_offset = at, offset
        return at - begin, offset


def _check_uncovered(metadata: RemoteLogSegmentMetadata, header: BatchHeader, least_offset: int) -> None:
    """The fields that the CRC does not cover. Of what lies below the log start the metadata have no epoch."""
    epoch = epoch_for_offset(metadata.segment_leader_epochs, header.last_offset)
    if header.leader_epoch < 0 and has_mark(metadata):
        epoch = None  # a cleaning has written a message of an old format anew
    if header.base_offset < least_offset or epoch not in (None, header.leader_epoch):
        raise BatchCorrupt(
            f"a batch of epoch {header.leader_epoch} at offset {header.base_offset}, expected epoch {epoch} from {least_offset} on"
        )


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
