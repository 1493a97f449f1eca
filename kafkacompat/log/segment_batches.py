"""The batches of one segment and the indexes that lead to them: appended, found by offset, indexed anew where an index is damaged.

Of the batches appended last the offsets and positions are remembered, so that reads at the tail touch no disk. Index bytes reach
their files page by page, and all of them when the segment is flushed, rolled or closed; a crash before that costs nothing, because
such segments are indexed anew. Other segments, producers and high watermarks are unknown here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.log import scan
from kafkacompat.log.aborted import TXN_INDEX_SUFFIX, SegmentAborted
from kafkacompat.log.index import MAX_OFFSET, IndexCorrupt
from kafkacompat.log.scan import ITERATE_CHUNK
from kafkacompat.log.segment_indexes import (
    REBUILT_SUFFIX,
    SegmentIndexes,
    last_time_entry,
)
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt, BatchHeader
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.log.offset_index import OffsetIndex
    from kafkacompat.log.time_index import TimeIndex
    from kafkacompat.ports import Buffer, Disk, File

T = TypeVar("T")
TAIL_BATCHES = 1024
"""Batches at the end of a segment whose offsets and positions are remembered, 16 bytes each."""
INDEX_INTERVAL_MOST = 256 * 1024
"""What index.interval.bytes is at most: so much of a log is walked for a read."""
SCAN_CHUNK = 16 * 1024
"""Bytes read at once while looking for a batch: several index intervals."""
LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"


def file_stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"


class SegmentBatches:
    """Offsets absolute, sizes in bytes, timestamps in ms; -1 for a timestamp that is not known."""

    __slots__ = (
        "_disk",
        "_file",
        "_tail_offsets",
        "_tail_positions",
        "_tail_starts_after",
        "aborted",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_interval_bytes",
        "indexes",
        "knows_largest_timestamp",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "mend_later",
        "modified_ms",
        "rolling_timestamp_ms",
        "size",
        "stem",
        "truncations",
        "unreadable",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        now_ms: int,
        cache: IndexCache,
        *,
        create: bool,
    ) -> None:
        self._disk = disk
        self.stem = file_stem(directory, base_offset)
        self.base_offset = base_offset
        self.index_interval_bytes = min(index_interval_bytes, INDEX_INTERVAL_MOST)
        self.created_ms = now_ms
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        self.modified_ms = -1
        """Of the file of a closed segment without timestamps, once it has been looked at."""
        self.truncations = 0
        """So often batches were taken away, after which as many bytes may be others."""
        self.unreadable: BatchCorrupt | None = None
        """Why its indexes could not be built anew."""
        self.mend_later: Callable[[Any], None] | None = None
        """Told when the indexes are damaged, to have them built anew; without it that is done on the spot."""
        self.rolling_timestamp_ms: int | None = None
        """Max timestamp of the first batch; None while it has not been looked at."""
        self.indexes = SegmentIndexes(disk, self.stem, base_offset, cache)
        self.aborted = SegmentAborted(disk, self.stem, base_offset, cache)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")
        self._tail_starts_after = -1
        """Last offset before the remembered tail; lookups at or below it go to the index."""
        self._file: File | None = None
        if create:
            self._file = disk.open(self.stem + LOG_SUFFIX, create=True)
            self.size = self._file.size()
        else:
            self.size = disk.file_size(self.stem + LOG_SUFFIX)
        self.knows_largest_timestamp = not self.size
        """Whether `max_timestamp_ms` is of the whole segment: of one that is opened it is in the time index."""
        if not self.size:
            self.indexes.begin()
            self.aborted.begin()

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.stem + LOG_SUFFIX)
        return file

    def append(
        self, buffer: Buffer, size: int, first_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Append one batch. On OSError nothing has changed."""
        if self.bytes_since_index_entry > self.index_interval_bytes and not self.indexes.are_ready():
            self._make_ready_for_entry()
        self.file.write_now(buffer)
        self._note(size, first_offset, last_offset, max_timestamp_ms)

    def append_many(self, buffer: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Append a run of batches, whose headers are given, in one write."""
        if not self.indexes.are_ready():
            self._make_ready_for_entry()
        self.file.write_now(buffer)
        for header in batches:
            self._note(header.size, header.base_offset, header.last_offset, header.max_timestamp_ms)

    def _note(self, size: int, first_offset: int, last_offset: int, max_timestamp_ms: int) -> None:
        position = self.size
        if not position:
            self.rolling_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self.indexes.add(
                self.size, last_offset, position, self.max_timestamp_ms, self.max_timestamp_offset
            )
            self.bytes_since_index_entry = size
        else:
            self.bytes_since_index_entry += size
        self.size = position + size
        offsets = self._tail_offsets
        if not offsets:
            self._tail_starts_after = first_offset - 1
        offsets.append(last_offset)
        self._tail_positions.append(position)
        if len(offsets) > TAIL_BATCHES:
            half = TAIL_BATCHES >> 1
            self._tail_starts_after = offsets[half - 1]
            del offsets[:half], self._tail_positions[:half]

    def make_ready_for_markers(self) -> None:
        """Read now what a marker's append would read: once it is written nothing may fail. OSError, BatchCorrupt."""
        self.aborted.make_ready()

    def _make_ready_for_entry(self) -> None:
        self._search(_make_ready)

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch that holds an offset, or of the first one after it; None past the last batch."""
        if self._tail_offsets and offset > self._tail_starts_after:
            at = bisect_left(self._tail_offsets, offset)
            if at == len(self._tail_offsets):
                return None
            position = self._tail_positions[at]
            following = self._tail_positions[at + 1] if at + 1 < len(self._tail_positions) else self.size
            return position, following - position
        if not self.size:
            return None
        known, start = self._lookup(offset)
        try:
            if start and known < self.base_offset:
                raise BatchCorrupt(f"the index of {self.stem} has offset {known} at {start}")
            return self._scan(offset, known, start)
        except BatchCorrupt:
            if not start:
                raise
            # Only a damaged index leads astray: the log itself was checked when it was written or recovered.
            self._mend()
            return self._scan(offset, *self._lookup(offset))

    def _lookup(self, offset: int) -> tuple[int, int]:
        return self._search(lambda offsets, _: offsets.lookup(offset))

    def _scan(self, offset: int, known: int, start: int) -> tuple[int, int] | None:
        """`known`: where the batch ends that begins at `start`, or one of the next: an entry of Kafka's may be of a run of them."""
        for header in self.headers(start, chunk=SCAN_CHUNK):
            if known >= 0:
                if header.last_offset > known:
                    raise BatchCorrupt(f"the index of {self.stem} has offset {known} at {start}")
                if header.last_offset == known:
                    known = -1
            if header.last_offset >= offset:
                return header.position, header.size
        if known >= 0:
            raise BatchCorrupt(f"the index of {self.stem} leads to no batch at {start}")
        return None

    def offset_above(self, end: int) -> int:
        """An offset above those of all batches that begin before a position, not far from them; -1 for the segment's end.

        Of a position at or after one that `find` gave.
        """
        positions = self._tail_positions
        if positions and end > positions[0]:
            return self._tail_offsets[bisect_left(positions, end) - 1] + 1
        offset = self._search(lambda offsets, _: offsets.offset_at(end))
        return self._tail_starts_after + 1 if offset < 0 and positions else offset

    def position_before(self, offset: int) -> int:
        """The beginning of some batch at or before the one that holds an offset, not far from it."""
        known, start = self._lookup(offset)
        if start:
            try:
                self._scan(known, known, start)
            except BatchCorrupt:
                self._mend()
                start = self._lookup(offset)[1]
        return start

    def headers(
        self, start: int = 0, end: int | None = None, chunk: int = ITERATE_CHUNK
    ) -> Iterator[BatchHeader]:
        """Headers of whole batches between two positions. BatchCorrupt where no batch can lie."""
        return scan.headers(self.file, start, self.size if end is None else end, chunk)

    def checked_batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch with its bytes. BatchCorrupt at the first that is not whole and sound."""
        return scan.checked_batches(self.file, self.size)

    def read_batch(self, header: BatchHeader) -> bytes:
        """All bytes of a batch that `headers` gave. Blocks."""
        return self.file.read_cold(header.position, header.size)

    def next_offset(self) -> int:
        """The offset after the last batch, by looking from the last index entry on; the base offset when empty."""
        result = self.base_offset
        for header in self._last_headers():
            result = header.last_offset + 1
        return result

    def _last_headers(self) -> Iterator[BatchHeader]:
        """From the last batch on that has an index entry."""
        return self.headers(self.position_before(MAX_OFFSET), chunk=SCAN_CHUNK)

    def _search(self, search: Callable[[OffsetIndex, TimeIndex], T]) -> T:
        """What the indexes say, once they are sound. See `_mend`."""
        try:
            return search(*self.indexes.pair(self.size))
        except (FileNotFoundError, IndexCorrupt):
            self._mend()
            return search(*self.indexes.pair(self.size))

    def index_views(self) -> tuple[OffsetIndex, TimeIndex]:
        """For a search in another thread."""
        return self._search(lambda offsets, times: (offsets.view(), times.view()))

    def report_damage(self) -> None:
        """As `_mend`, of indexes that somebody else found damaged. Raises LogRefused unless they are built anew on the spot."""
        self.indexes.forget()
        self._mend()

    def _mend(self) -> None:
        """The indexes are damaged. LogRefused KAFKA_STORAGE_ERROR while they are built anew by somebody else."""
        if self.unreadable is not None:
            raise self.unreadable
        if self.mend_later is None:
            self.rebuild_indexes()
            return
        self.mend_later(self)
        raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"the indexes of {self.stem} are being built anew")

    def rebuild_indexes(self) -> None:
        """Make offset and time index anew from the headers of whole batches. Blocks for as long as that takes."""
        self.build_indexes_beside()
        self.take_rebuilt_indexes()

    def build_indexes_beside(self) -> None:
        """Durable under other names: a kill must not leave a part of an index, which nobody would doubt. Blocks; on a segment
        object of one's own any thread may do it."""
        self.begin_reindex(REBUILT_SUFFIX)
        for header in self.headers():
            self.index_batch(header)
        self.finish_reindex()
        self.indexes.sync()

    def take_rebuilt_indexes(self) -> None:
        """In the place of those there are."""
        self.indexes.take_rebuilt()

    def begin_reindex(self, suffix: str = "") -> None:
        """Of the names of the files, if they are to take the place of the indexes later."""
        self.indexes.begin(suffix)
        self.knows_largest_timestamp = True
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self.bytes_since_index_entry = 0

    def index_batch(self, header: BatchHeader, *, in_memory: bool = False) -> None:
        """Index a batch already in the file, as the append did when it was written. On OSError nothing has changed, and with
        `in_memory` there is none."""
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = header.max_timestamp_ms, header.last_offset
        if self.bytes_since_index_entry > self.index_interval_bytes:
            if not in_memory:
                self._make_ready_for_entry()
            self.indexes.add(
                self.size,
                header.last_offset,
                header.position,
                self.max_timestamp_ms,
                self.max_timestamp_offset,
            )
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += header.size

    def finish_reindex(self) -> None:
        self._note_largest()
        self.write_indexes()

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of its batch); (-1, base offset) when no record has one. See `note_largest_timestamp`."""
        if not self.knows_largest_timestamp and self.size:
            try:
                found = last_time_entry(self._disk, self.stem, self.base_offset)
            except (FileNotFoundError, IndexCorrupt):
                self._mend()
            else:
                self.note_largest_timestamp(*found)
        return self.max_timestamp_ms, self.max_timestamp_offset

    def note_largest_timestamp(self, timestamp_ms: int, offset: int) -> None:
        """The last entry of a closed segment's time index (`last_time_entry`), read aside; of one with more since, what is more."""
        if not self.knows_largest_timestamp:
            self.knows_largest_timestamp = True
            if timestamp_ms >= self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, offset

    def _note_largest(self) -> None:
        if self.size:
            timestamp_ms, offset = self.largest_timestamp()
            self._search(lambda _, times: times.maybe_append(timestamp_ms, offset))

    def write_indexes(self, *, create: bool = True) -> list[str]:
        """Bring the index files up to the entries in memory, unsynced; the paths of those that hold entries, or may.

        With create=False a file that has never had an entry is not made.
        """
        holding = list(self.indexes.write(create=create))
        aborted, path = self.aborted.attached, self.stem + TXN_INDEX_SUFFIX
        if aborted is not None and (aborted.size or self._disk.exists(path)):
            aborted.write()
        if aborted.size if aborted is not None else self._disk.exists(path):
            holding.append(path)
        return holding

    def _forget_tail(self) -> None:
        del self._tail_offsets[:], self._tail_positions[:]


def _make_ready(offsets: OffsetIndex, times: TimeIndex) -> None:
    offsets.make_ready()
    times.make_ready()
