"""One segment: a .log file of batches with its three indexes.

Duty: append, find a batch by offset, iterate headers, cut, close, rename. Must not know: other segments, producers,
high watermarks, retention. Of the batches appended last it remembers the offsets and positions, so reads at the tail
touch no disk. Index bytes reach their files when the segment is flushed, rolled or closed; a crash before that costs nothing,
because such segments are indexed anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.log import scan
from kafkacompat.log.aborted import TXN_INDEX_SUFFIX, SegmentAborted
from kafkacompat.log.index import Index, IndexCorrupt, OffsetIndex, TimeIndex, TransactionIndex
from kafkacompat.log.scan import ITERATE_CHUNK
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, BatchHeader

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Disk, File

AnyIndex = TypeVar("AnyIndex", bound=Index)

TAIL_BATCHES = 1024
"""Batches at the end of a segment whose offsets and positions are remembered (about 100 bytes each)."""
SCAN_CHUNK = 16 * 1024
"""Bytes read at once while looking for a batch: several index intervals."""
LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX = ".log", ".index", ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"


def file_stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"


class Segment:
    """Offsets absolute, sizes in bytes, timestamps in ms; -1 for a timestamp that is not known."""

    __slots__ = (
        "_disk",
        "_file",
        "_offset_index",
        "_tail_offsets",
        "_tail_positions",
        "_tail_starts_after",
        "_time_index",
        "aborted",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "rolling_timestamp_ms",
        "size",
        "stem",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        now_ms: int,
        *,
        create: bool,
    ) -> None:
        self._disk = disk
        self.stem = file_stem(directory, base_offset)
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        self.rolling_timestamp_ms: int | None = None
        """Max timestamp of the first batch; None while it has not been looked at."""
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.aborted = SegmentAborted(disk, self.stem, base_offset)
        self._tail_offsets: list[int] = []
        self._tail_positions: list[int] = []
        self._tail_starts_after = -1
        """Last offset before the remembered tail; lookups at or below it go to the index."""
        self._file: File | None = None
        if create:
            self._file = disk.open(self.stem + LOG_SUFFIX, create=True)
            self.size = self._file.size()
        else:
            self.size = disk.file_size(self.stem + LOG_SUFFIX)
        if not self.size:
            self._offset_index = OffsetIndex(base_offset)
            self._time_index = TimeIndex(base_offset)
            self.aborted.begin()

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.stem + LOG_SUFFIX)
        return file

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TransactionIndex:
        return self.aborted.index

    def prepare_for_markers(self) -> None:
        """Read now what a marker's append would read: once it is written nothing may fail. Raises as `txn_index` does."""
        _ = self.aborted.index

    def append(
        self, buffer: Buffer, size: int, first_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Append one batch. On OSError nothing has changed."""
        self.file.write_now(buffer)
        self._note(size, first_offset, last_offset, max_timestamp_ms)

    def append_many(self, buffer: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Append a run of batches, whose headers are given, in one write."""
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
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
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
        known, start = self.offset_index.lookup(offset)
        try:
            if start and known < self.base_offset:
                raise BatchCorrupt(f"the index of {self.stem} has offset {known} at {start}")
            return self._scan(offset, known, start)
        except BatchCorrupt:
            if not start:
                raise
            # Only a damaged index leads astray: the log itself was checked when it was written or recovered.
            self.rebuild_indexes()
            return self._scan(offset, *self.offset_index.lookup(offset))

    def _scan(self, offset: int, known: int, start: int) -> tuple[int, int] | None:
        for header in self.headers(start, chunk=SCAN_CHUNK):
            if known >= 0:
                if header.last_offset != known:
                    raise BatchCorrupt(f"the index of {self.stem} has offset {known} at {start}")
                known = -1
            if header.last_offset >= offset:
                return header.position, header.size
        if known >= 0:
            raise BatchCorrupt(f"the index of {self.stem} leads to no batch at {start}")
        return None

    def offset_above(self, end: int) -> int:
        """An offset above those of all batches that begin before a position, not far from them; -1 for the segment's end.

        Of a position at or after one that `find` gave; reads nothing.
        """
        positions = self._tail_positions
        if positions and end > positions[0]:
            return self._tail_offsets[bisect_left(positions, end) - 1] + 1
        offset = self.offset_index.offset_at(end)
        return self._tail_starts_after + 1 if offset < 0 and positions else offset

    def position_before(self, offset: int) -> int:
        """The beginning of some batch at or before the one that holds an offset, not far from it."""
        known, start = self.offset_index.lookup(offset)
        if start:
            try:
                header = next(self.headers(start, chunk=HEADER_SIZE), None)
            except BatchCorrupt:
                header = None
            if header is None or header.last_offset != known:
                self.rebuild_indexes()
                start = self.offset_index.lookup(offset)[1]
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
        """All bytes of a batch that `headers` gave."""
        return self.file.try_read(header.position, header.size) or self.file.read_cold(
            header.position, header.size
        )

    def next_offset(self) -> int:
        """The offset after the last batch, by looking from the last index entry on; the base offset when empty."""
        result = self.base_offset
        for header in self.headers(self.position_before(self.offset_index.last_offset()), chunk=SCAN_CHUNK):
            result = header.last_offset + 1
        return result

    def first_batch_timestamp(self) -> int | None:
        """Max timestamp of the first batch; None when the segment is empty."""
        if self.rolling_timestamp_ms is None and self.size:
            for header in self.headers(chunk=HEADER_SIZE):
                self.rolling_timestamp_ms = header.max_timestamp_ms
                break
        return self.rolling_timestamp_ms

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of its batch); (-1, base offset) when no record has one."""
        if self.max_timestamp_ms < 0 and self.size:
            self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last_entry()
        return self.max_timestamp_ms, self.max_timestamp_offset

    def retention_timestamp_ms(self) -> int:
        """The largest record timestamp, else when the file was last written."""
        timestamp_ms = self.largest_timestamp()[0]
        return timestamp_ms if timestamp_ms >= 0 else self._disk.modified_ms(self.stem + LOG_SUFFIX)

    def is_full(self, index_bytes: int) -> bool:
        """Whether an index has no room: Kafka keeps one slot of the time index for the entry made on closing."""
        return len(self.offset_index) >= index_bytes // 8 or len(self.time_index) >= max(
            index_bytes // 12 - 1, 1
        )

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop batches from the one that holds the offset on. Where the log ends then: a batch cut in its middle is gone whole."""
        found = self.find(offset)
        end = offset
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if self.txn_index.data:
            self.txn_index.truncate_to(offset)
        if found is not None:
            end = min(offset, next(iter(self.headers(found[0]))).base_offset)
            self.file.truncate(found[0])
            self.size = found[0]
            kept = bisect_left(self._tail_positions, found[0])
            del self._tail_offsets[kept:], self._tail_positions[kept:]
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last_entry()
        if self.size:
            for header in self.headers(self.position_before(self.max_timestamp_offset)):
                if header.max_timestamp_ms > self.max_timestamp_ms:
                    self.max_timestamp_ms, self.max_timestamp_offset = (
                        header.max_timestamp_ms,
                        header.last_offset,
                    )
        else:
            self.created_ms = now_ms
            self.rolling_timestamp_ms = None
        self.write_indexes()
        return end

    def cut(self, size: int) -> None:
        """Shorten the log file to a size; the indexes are the caller's to build anew."""
        if size < self.size:
            self.file.truncate(size)
            self.size = size
        self._tail_offsets.clear()
        self._tail_positions.clear()

    def rebuild_indexes(self) -> None:
        """Make offset and time index anew from the headers of whole batches."""
        self.begin_reindex()
        for header in self.headers():
            self.index_batch(header)
        self.finish_reindex()

    def begin_reindex(self) -> None:
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self.bytes_since_index_entry = 0

    def index_batch(self, header: BatchHeader) -> None:
        """Index a batch already in the file, as the append did when it was written."""
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = header.max_timestamp_ms, header.last_offset
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(header.last_offset, header.position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += header.size

    def finish_reindex(self) -> None:
        if self.size:
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.write_indexes()

    def become_inactive(self) -> None:
        """The last entry of the time index, by which retention goes, and all index bytes into their files."""
        if self.size:
            self.time_index.maybe_append(*self.largest_timestamp())
        self.write_indexes()

    def write_indexes(self, *, create: bool = True) -> list[str]:
        """Bring the index files up to the entries in memory, unsynced; the paths of those that hold entries, or may.

        With create=False a file that has never had an entry is not made.
        """
        holding = []
        for index, suffix in (
            (self._offset_index, INDEX_SUFFIX),
            (self._time_index, TIME_INDEX_SUFFIX),
            (self.aborted.loaded, TXN_INDEX_SUFFIX),
        ):
            path = self.stem + suffix
            if index is None:
                # Let go of after it was written, but perhaps not synced yet.
                if self._disk.exists(path):
                    holding.append(path)
                continue
            if index.data:
                holding.append(path)
            elif index is self.aborted.loaded:
                if not self._disk.exists(path):
                    continue
            elif not create:
                continue
            file = self._disk.open(path, create=True)
            if file.size() != index.written:
                file.truncate(index.written)
            if index.written < len(index.data):
                file.write_now(memoryview(index.data)[index.written :])
                index.written = len(index.data)
            file.close()
        return holding

    def relocate(self, directory: str) -> None:
        """The directory has another name now; open files do not notice."""
        self.stem = self.aborted.stem = file_stem(directory, self.base_offset)

    def forget_indexes(self) -> None:
        """Let an old segment's index entries go from memory; they are read again when needed."""
        if self._offset_index is not None and self._time_index is not None:
            self.largest_timestamp()
            if self._offset_index.written == len(self._offset_index.data):
                self._offset_index = None
            if self._time_index.written == len(self._time_index.data):
                self._time_index = None
        self.aborted.forget()
        self._tail_offsets.clear()
        self._tail_positions.clear()

    def paths(self) -> list[str]:
        """Those of its files that exist."""
        suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        return [self.stem + suffix for suffix in suffixes if self._disk.exists(self.stem + suffix)]

    def release(self) -> None:
        """Let go of the file; it closes when the last slice that refers to it is gone."""
        self._file = None

    def _load_indexes(self) -> None:
        try:
            offset_index = self._read_index(OffsetIndex, INDEX_SUFFIX)
            time_index = self._read_index(TimeIndex, TIME_INDEX_SUFFIX)
            offset_index.check(self.size)
            time_index.check()
        except (FileNotFoundError, IndexCorrupt):
            self.rebuild_indexes()
        else:
            self._offset_index, self._time_index = offset_index, time_index

    def _read_index(self, kind: type[AnyIndex], suffix: str) -> AnyIndex:
        return kind(self.base_offset, self._disk.read_bytes(self.stem + suffix))
