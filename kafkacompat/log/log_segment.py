"""One segment: a .log file of batches with three indexes. Append, find by offset, rebuild damaged indexes, truncate, close.

The offsets and positions of the last batches are in memory, so reads at the tail use no disk. Index bytes are written
page by page, and completely when the segment is flushed, rolled or closed. A crash before that does no harm, because
such segments are reindexed. The indexes of a closed segment are only in the node's cache. Its largest timestamp is kept
once it is known. Other segments, producers and high watermarks are unknown here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.log import file_records
from kafkacompat.log.file_records import ITERATE_CHUNK
from kafkacompat.log.index import MAX_OFFSET, IndexCorrupt
from kafkacompat.log.segment_indexes import (
    INDEX_SUFFIX,
    REBUILT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentAborted,
    SegmentIndexes,
    last_time_entry,
)
from kafkacompat.ports import IndexesRebuilt
from kafkacompat.records.batch import (
    HEADER_SIZE,
    LEGACY_MINIMUM_LENGTH,
    LOG_OVERHEAD,
    BatchCorrupt,
    BatchHeader,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.log.index import OffsetIndex, TimeIndex
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.ports import Buffer, Disk, File

T = TypeVar("T")
TAIL_BATCHES = 1024
"""Batches at the end of a segment whose offsets and positions are in memory, 16 bytes each."""
INDEX_INTERVAL_MOST = 256 * 1024
"""Upper bound of index.interval.bytes: the most bytes of a log that a read must walk."""
BATCH_LEAST = LOG_OVERHEAD + LEGACY_MINIMUM_LENGTH
SCAN_CHUNK = 16 * 1024
"""Bytes per read when searching a batch: several index intervals."""
LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"


def file_stem(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"


class LogSegment:
    """Offsets are absolute, sizes in bytes, timestamps in ms. An unknown timestamp is -1."""

    __slots__ = (
        "__weakref__",
        "_disk",
        "_entry_bytes",
        "_file",
        "_may_have_left_bytes",
        "_open_files",
        "_tail_offsets",
        "_tail_positions",
        "_tail_starts_after",
        "aborted",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "damage",
        "index_interval_bytes",
        "indexes",
        "knows_largest_timestamp",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "modified_ms",
        "rebuild_later",
        "rolling_timestamp_ms",
        "size",
        "stem",
        "truncations",
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
        """Modification time of a closed segment's file, in ms, for a segment without timestamps. -1 if not read yet."""
        self.truncations = 0
        """Number of truncations. After a truncation, a file of the same size may have other batches."""
        self.damage: str | None = None
        """The error that stopped a rebuild of the indexes."""
        self.rebuild_later: Callable[[Any], None] | None = None
        """Called to have damaged indexes rebuilt. Without it they are rebuilt at once."""
        self.rolling_timestamp_ms: int | None = None
        """Max timestamp of the first batch. None if not read yet."""
        self.indexes = SegmentIndexes(disk, self.stem, base_offset, cache)
        self.aborted = SegmentAborted(disk, self.stem, base_offset, cache)
        self._tail_offsets = array("q")
        self._tail_positions = array("q")
        self._tail_starts_after = -1
        """Last offset before the batches in memory. Lookups at or below it use the index."""
        self._file: File | None = None
        self._may_have_left_bytes = False
        """A write has failed half way, and the disk may have refused to take it back. Once the file was closed and opened
        again, the next write would come after those bytes. Once the segment is closed, a start would take them for damage in
        the middle of the log."""
        self._open_files = cache.open_files
        if create:
            self._file = disk.open(self.stem + LOG_SUFFIX, create=True)
            self._open_files.opened(self)
            self.size = self._file.size()
        else:
            self.size = disk.file_size(self.stem + LOG_SUFFIX)
        self.knows_largest_timestamp = not self.size
        """Whether `max_timestamp_ms` covers the whole segment. For an opened segment the value is in the time index."""
        self._entry_bytes = BATCH_LEAST
        """At least so many bytes are between two entries of an index. Other settings may have been in force earlier."""
        if not self.size:
            self._entry_bytes = self.index_interval_bytes
            self.indexes.begin()
            self.aborted.begin()

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._disk.open(self.stem + LOG_SUFFIX)
            if self._may_have_left_bytes and file.size() > self.size:
                file.truncate(self.size)
            self._file = file
            self._open_files.opened(self)
        return file

    def release(self) -> None:
        """Drop the file object. The file closes when the last slice that refers to it is gone, and the next use opens it
        again."""
        self._file = None
        self._open_files.closed(self)

    def append(
        self, buffer: Buffer, size: int, first_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Append one batch. On OSError nothing has changed."""
        if self.bytes_since_index_entry > self.index_interval_bytes and not self.indexes.are_ready():
            self._make_ready_for_entry()
        try:
            (self._file or self.file).write_now(buffer)
        except OSError:
            self._may_have_left_bytes = True
            raise
        self._note(size, first_offset, last_offset, max_timestamp_ms)

    def append_many(self, buffer: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Append a run of batches, given with their headers, in one write."""
        if not self.indexes.are_ready():
            self._make_ready_for_entry()
        try:
            (self._file or self.file).write_now(buffer)
        except OSError:
            self._may_have_left_bytes = True
            raise
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
        """Read now what the append of a marker needs, because nothing may fail after the write. Raises OSError or
        BatchCorrupt."""
        self.aborted.make_ready()

    def _make_ready_for_entry(self) -> None:
        self._search(_make_ready)

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch that contains an offset, or of the first batch after it. None after the last
        batch."""
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
            # Only a damaged index can lead to a wrong place: the log was checked when it was written or recovered.
            self._mend()
            return self._scan(offset, *self._lookup(offset))

    def _lookup(self, offset: int) -> tuple[int, int]:
        return self._search(lambda offsets, _: offsets.lookup(offset))

    def _scan(self, offset: int, known: int, start: int) -> tuple[int, int] | None:
        """`known` is the last offset of the batch at `start` or of one of the next batches. Kafka's index entries may
        cover a run of batches."""
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
        """An offset that is above all batches which begin before `end`, and close to them. -1 means the segment's end.

        `end` must be at or after a position that `find` returned.
        """
        positions = self._tail_positions
        if positions and end > positions[0]:
            return self._tail_offsets[bisect_left(positions, end) - 1] + 1
        offset = self._search(lambda offsets, _: offsets.offset_at(end))
        return self._tail_starts_after + 1 if offset < 0 and positions else offset

    def position_before(self, offset: int) -> int:
        """The position of a batch at or shortly before the one that contains an offset."""
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
        """Headers of the complete batches between two positions. Raises BatchCorrupt for an invalid header."""
        return file_records.headers(self.file, start, self.size if end is None else end, chunk)

    def checked_batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch with its bytes. Raises BatchCorrupt at the first incomplete or invalid one."""
        return file_records.checked_batches(self.file, self.size)

    def read_batch(self, header: BatchHeader) -> bytes:
        """All bytes of a batch that `headers` returned. Blocks."""
        return self.file.read_cold(header.position, header.size)

    def next_offset(self) -> int:
        """The offset after the last batch, found by a walk from the last index entry. The base offset if the segment
        is empty."""
        result = self.base_offset
        for header in self._last_headers():
            result = header.last_offset + 1
        return result

    def _last_headers(self) -> Iterator[BatchHeader]:
        """Headers from the last batch with an index entry on."""
        return self.headers(self.position_before(MAX_OFFSET), chunk=SCAN_CHUNK)

    def _search(self, search: Callable[[OffsetIndex, TimeIndex], T]) -> T:
        """Search the indexes, and rebuild them first if they are damaged. See `_mend`."""
        try:
            return search(*self.indexes.pair(self.size))
        except (FileNotFoundError, IndexCorrupt):
            self._mend()
            return search(*self.indexes.pair(self.size))

    def index_views(self) -> tuple[OffsetIndex, TimeIndex]:
        """Copies of the indexes for a search in another thread."""
        return self._search(lambda offsets, times: (offsets.view(), times.view()))

    def report_damage(self) -> None:
        """Like `_mend`, if another thread found the damage. Raises IndexesRebuilt unless the indexes are rebuilt at
        once."""
        self.indexes.forget()
        self._mend()

    def _mend(self) -> None:
        """Have the damaged indexes rebuilt. Raises IndexesRebuilt KAFKA_STORAGE_ERROR while that happens in the
        background."""
        if self.damage is not None:
            # A new error each time: what it leads to may not be kept by the next one.
            raise BatchCorrupt(self.damage)
        if self.rebuild_later is None:
            self.rebuild_indexes()
            return
        self.rebuild_later(self)
        raise IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR, f"the indexes of {self.stem} are being rebuilt")

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batch headers. Blocks as long as that takes."""
        self.build_indexes_beside()
        self.take_rebuilt_indexes()

    def build_indexes_beside(self) -> None:
        """Build the indexes durably under other names. Otherwise a kill could leave a partial index that looks valid.
        Blocks; any thread may do it on its own segment object."""
        self.begin_reindex(REBUILT_SUFFIX)
        for header in self.headers():
            self.index_batch(header)
        self.finish_reindex()
        self.indexes.sync()

    def take_rebuilt_indexes(self) -> None:
        """Put the rebuilt files in the place of the present ones."""
        self.indexes.take_rebuilt()

    def begin_reindex(self, suffix: str = "") -> None:
        """Start empty indexes. `suffix` is appended to the file names if the indexes will replace others later."""
        self.indexes.begin(suffix)
        self.knows_largest_timestamp = True
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self.bytes_since_index_entry = 0

    def index_batch(self, header: BatchHeader, *, in_memory: bool = False) -> None:
        """Index a batch that is in the file, as an append would. On OSError nothing has changed; `in_memory` prevents
        writes to the files."""
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
        """(timestamp, last offset of its batch). (-1, base offset) if no record has one. See `note_largest_timestamp`."""
        if not self.knows_largest_timestamp and self.size:
            try:
                found = last_time_entry(self._disk, self.stem, self.base_offset)
            except (FileNotFoundError, IndexCorrupt):
                self._mend()
            else:
                self.note_largest_timestamp(*found)
        return self.max_timestamp_ms, self.max_timestamp_offset

    def note_largest_timestamp(self, timestamp_ms: int, offset: int) -> None:
        """Take over the last time index entry of a segment (`last_time_entry`). A larger timestamp of a later append
        stays."""
        if not self.knows_largest_timestamp:
            self.knows_largest_timestamp = True
            if timestamp_ms >= self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, offset

    def _note_largest(self) -> None:
        if self.size:
            timestamp_ms, offset = self.largest_timestamp()
            self._search(lambda _, times: times.maybe_append(timestamp_ms, offset))

    def write_indexes(self, *, create: bool = True) -> list[str]:
        """Write the entries in memory to the index files, without a sync. Returns the paths of the files that have
        entries, or may have.

        With create=False a file that never had an entry is not created.
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

    def first_batch_timestamp(self) -> int | None:
        """Max timestamp of the first batch. None if the segment is empty."""
        if self.rolling_timestamp_ms is None and self.size:
            for header in self.headers(chunk=HEADER_SIZE):
                self.rolling_timestamp_ms = header.max_timestamp_ms
                break
        return self.rolling_timestamp_ms

    def retention_timestamp_ms(self) -> int:
        """The largest record timestamp, or the file's modification time if there is none. Reads files unless
        `knows_its_age`."""
        timestamp_ms = self.largest_timestamp()[0]
        if timestamp_ms >= 0:
            return timestamp_ms
        return self.modified_ms if self.modified_ms >= 0 else self._disk.modified_ms(self.stem + LOG_SUFFIX)

    def knows_its_age(self) -> bool:
        return self.knows_largest_timestamp and (self.max_timestamp_ms >= 0 or self.modified_ms >= 0)

    def knows_ages(self, *, largest: bool, first: bool) -> bool:
        """Whether `learn_ages` has nothing to read."""
        return not self.size or (
            (not largest or self.knows_its_age()) and (not first or self.rolling_timestamp_ms is not None)
        )

    def learn_ages(self, *, largest: bool, first: bool) -> None:
        """Read a closed segment's largest timestamp, and that of its first batch. Files that were not open are closed
        again."""
        if largest:
            timestamp_ms = self.retention_timestamp_ms()
            if self.max_timestamp_ms < 0:
                self.modified_ms = timestamp_ms
        if first:
            was_open = self._file is not None
            if self.first_batch_timestamp() is None:
                self.rolling_timestamp_ms = -1
            if not was_open:
                self.release()

    def are_indexes_full(self, index_bytes: int) -> bool:
        """Whether an index is full. The indexes are not read while the segment is too small for that."""
        return self.size > self._least_full_from(index_bytes) and self._entries_left(index_bytes) <= 0

    def indexes_full_from(self, index_bytes: int) -> int:
        """Up to this size of the segment no index can be full, if it is not full now."""
        least = self._least_full_from(index_bytes)
        if self.size <= least:
            return least
        return self.size + (self._entries_left(index_bytes) - 1) * self.index_interval_bytes

    def _least_full_from(self, index_bytes: int) -> int:
        return (min(index_bytes // 8, index_bytes // 12 - 1) - 1) * self._entry_bytes

    def _entries_left(self, index_bytes: int) -> int:
        """Kafka keeps one slot of the time index for the entry written when the segment is closed."""
        offsets, times = self._search(lambda offsets, times: (len(offsets), len(times)))
        return min(index_bytes // 8 - offsets, max(index_bytes // 12 - 1, 1) - times)

    def look_at(self, offset: int) -> int:
        """Read what a truncation at the offset would read. Returns the base offset of the first batch that it would drop,
        or the offset."""
        found = self.find(offset)
        self._search(lambda offsets, times: (offsets.lookup(offset), times.last_entry()))
        self.aborted.find(offset, MAX_OFFSET, 1)
        if found is None:
            return offset
        return min(offset, next(iter(self.headers(found[0], chunk=HEADER_SIZE))).base_offset)

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batches from the one that contains the offset on. Returns the new end of the log: a batch that
        spans the offset is dropped whole."""
        found = self.find(offset)
        end = offset
        is_wrapper = False

        def truncate(offsets: OffsetIndex, times: TimeIndex) -> None:
            offsets.truncate_to(offset)
            times.truncate_to(offset)

        self._search(truncate)
        self.aborted.truncate_to(offset)
        if found is not None:
            dropped = next(iter(self.headers(found[0], chunk=HEADER_SIZE)))
            end = min(offset, dropped.base_offset)
            # A compressed message of an old format tells its last offset only.
            is_wrapper = dropped.magic != 2 and dropped.codec != 0
            self.truncations += 1
            self.file.truncate(found[0])
            self.size = found[0]
            kept = bisect_left(self._tail_positions, found[0])
            del self._tail_offsets[kept:], self._tail_positions[kept:]
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms, self.max_timestamp_offset = self._search(lambda _, times: times.last_entry())
        self.knows_largest_timestamp = True
        if self.size:
            # The time index covers everything before the last entry of the offset index.
            for header in self._last_headers():
                if header.max_timestamp_ms > self.max_timestamp_ms:
                    self.max_timestamp_ms, self.max_timestamp_offset = (
                        header.max_timestamp_ms,
                        header.last_offset,
                    )
        else:
            self.created_ms = now_ms
            self.rolling_timestamp_ms = None
        if is_wrapper:
            end = min(offset, self.next_offset())
        # The index files are cut at the next write of the indexes. A full disk would refuse to write them now, after
        # half of the change.
        return end

    def cut(self, size: int) -> None:
        """Shorten the log file to a size. The caller must rebuild the indexes."""
        if size < self.size:
            self.truncations += 1
            self.file.truncate(size)
            self.size = size
        self._forget_tail()

    def become_inactive(self) -> bool:
        """Add the last entry of the time index, which retention uses. Write all index bytes to the files and free
        their memory. Returns whether the files lacked entries."""
        if self._may_have_left_bytes:
            self.file.truncate(self.size)
        self._note_largest()
        has_new_entries = self.indexes.wait_for_their_files()
        self.write_indexes()
        self.let_go()
        return has_new_entries

    def relocate(self, directory: str) -> None:
        """Adopt the directory's new name. Open files are not affected."""
        self.stem = file_stem(directory, self.base_offset)
        self.aborted.relocate(self.stem)
        self.indexes.relocate(self.stem)

    def let_go(self) -> None:
        """Free the index entries that the files also have, and the positions of the last batches. For segments that
        take no appends for now."""
        self.indexes.let_go()
        self.aborted.let_go()
        self._forget_tail()

    def names(self) -> list[str]:
        """The paths of the segment's files, whether they exist or not."""
        return [
            self.stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        ]

    def paths(self) -> list[str]:
        """The paths of the segment's files that exist."""
        return [path for path in self.names() if self._disk.exists(path)]

    def retire(self) -> None:
        """Free what is kept of a segment that nobody looks for any more."""
        self.release()
        self.indexes.uncache()
        self.aborted.uncache()


def _make_ready(offsets: OffsetIndex, times: TimeIndex) -> None:
    offsets.make_ready()
    times.make_ready()
