"""The blocking part of a cleaning: read the dirty part into an offset map, then rewrite each group of segments.

It reads closed files by name and feeds the filter and the map. The UnifiedLog, threads and clocks are unknown here.
`pace` is called with the number of bytes moved, and may wait or raise CleaningStopped.

The positions of batches in mapped segments are remembered within a bound (`BatchPositions`), so that batches without any kept
record need not be read again. That is only for segments without transactional batches, because those must be read in order.

A cleaned segment is a log file and its indexes under names that end in `.cleaned` (`CleanedSegment`). These files are not read
before they are renamed, and a start removes them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from kafkacompat.log.cleaner.filtering import (
    BatchFilter,
    CleanedTransactionMetadata,
    check_count,
    key_of_control,
    open_body,
    open_legacy,
)
from kafkacompat.log.cleaner.job import CleaningJob, SegmentFile, group_segments
from kafkacompat.log.cleaner.offset_map import TOMBSTONE_BATCHES_MOST, KeptOffsets, OffsetMap
from kafkacompat.log.file_records import whole_batches
from kafkacompat.log.index import MAX_RELATIVE_OFFSET, AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex
from kafkacompat.log.log_segment import CLEANED_SUFFIX, INDEX_INTERVAL_MOST, LOG_SUFFIX, file_stem
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, read_txn_index
from kafkacompat.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchCorrupt,
    has_valid_crc,
)
from kafkacompat.records.compression import UNPACKED_BYTES_MAX, DecompressionFailed
from kafkacompat.records.record import RecordMalformed
from kafkacompat.records.scan import Columns

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.filtering import Kept
    from kafkacompat.ports import Buffer, Disk
    from kafkacompat.records.batch import BatchHeader

POSITIONS_MOST = 200_000
"""The bound, at 16 bytes each. Segments beyond it are read whole."""
GAP_BYTES = 32 * 1024
"""A gap of up to this many bytes is read rather than skipped."""
BUFFERS_MOST = 256
Places = Sequence[tuple[int, int]]
"""(first byte of a batch, end of the last batch) of each part, ascending."""
Pace = Callable[[int], None]
Stage = Callable[[SegmentFile], SegmentFile]
"""Puts the log file of a segment into its place, and tells its size."""

SPECIAL_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
UNREADABLE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
LEAST_READ_BYTES = 64 * 1024


def in_place(segment: SegmentFile) -> SegmentFile:
    return segment


class CleaningStopped(Exception):
    """The cleaning was cancelled."""


class CleanerStats:
    __slots__ = ("bytes_read", "bytes_written", "map_bytes_read", "map_utilization")

    def __init__(self) -> None:
        self.map_utilization = 0.0
        """The share of the offset map that the dirty part fills."""
        self.map_bytes_read = 0
        self.bytes_read = 0
        self.bytes_written = 0


class Cleaner:
    """Call `build_map`, then `clean_group` for each of `groups`. Blocks; one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        job: CleaningJob,
        pace: Pace,
        bytes_most: int = UNPACKED_BYTES_MAX,
        stage: Stage = in_place,
    ) -> None:
        """`bytes_most` bounds what a batch may expand to. `stage` is called before a segment is read."""
        self._stage = stage
        self._bytes_most = bytes_most
        self._disk = disk
        self._job = job
        self._pace = pace
        self._read_bytes = max(job.limits.io_bytes, LEAST_READ_BYTES)
        self._map: OffsetMap | None = None
        self._filter: BatchFilter | None = None
        self._last_offsets = sorted(
            [last.last_data_offset for last in job.last_records.values()] + [job.round_end_offset - 1]
        )
        """The last offsets of batches that keep their header even if all their records are dropped."""
        self._transactions = CleanedTransactionMetadata((), 0)
        self._kept_offsets: KeptOffsets | None = None
        self._legacy_horizon_ms = 0
        self._tombstone_batches = array("q")
        self._positions_of_batches = BatchPositions()
        self.groups: list[list[SegmentFile]] = []
        self.end_offset = job.first_dirty_offset
        """The end of the clean part after this cleaning."""
        self.stats = CleanerStats()

    def build_map(self) -> None:
        """Raises CleaningStopped, TooLargeHere, OSError, or one of UNREADABLE for data that cannot be read."""
        job = self._job
        offset_map = self._map = OffsetMap(job.limits.map_bytes, job.limits.load_factor)
        aborted = self._aborted()
        transactions = CleanedTransactionMetadata(aborted, job.first_dirty_offset)
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            if not self._map_segment(self._stage(segment), offset_map, transactions):
                break
            offset_map.latest_offset = max(offset_map.latest_offset, segment.end_offset - 1)
        self.stats.map_utilization = offset_map.utilization
        self.end_offset = max(offset_map.latest_offset + 1, job.first_dirty_offset)
        segments = [segment for segment in job.segments if segment.base_offset < self.end_offset]
        self.groups = group_segments(
            segments,
            [
                (self._index_bytes(segment, INDEX_SUFFIX), self._index_bytes(segment, TIME_INDEX_SUFFIX))
                for segment in segments
            ],
            segment_bytes=job.segment_bytes,
            index_bytes=job.segment_index_bytes,
        )
        clean = [segment for segment in job.segments if segment.base_offset < job.first_dirty_offset]
        if clean and not job.is_staged:
            modified_ms = self._disk.modified_ms(clean[-1].stem + LOG_SUFFIX)
            self._legacy_horizon_ms = modified_ms - job.delete_retention_ms
        self._transactions = CleanedTransactionMetadata(
            aborted, job.segments[0].base_offset, keeps_entries=job.keeps_deletes
        )
        kept_offsets = self._kept_offsets = KeptOffsets(
            offset_map.offsets(),
            job.first_dirty_offset,
            offset_map.latest_offset,
            self._tombstone_batches,
            offset_map.marks_most,
        )
        self._filter = BatchFilter(
            offset_map,
            kept_offsets,
            self._transactions,
            job.last_records,
            round_end_offset=job.round_end_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            keeps_deletes=job.keeps_deletes,
            bytes_most=self._bytes_most,
        )

    def _aborted(self) -> list[AbortedTxn]:
        """Every aborted transaction with records in the job's segments."""
        job = self._job
        found: list[AbortedTxn] = []
        for segment in (*job.segments, *job.later_segments):
            index = read_txn_index(self._disk, segment.stem, segment.base_offset)
            entries, complete = index.collect(job.segments[0].base_offset, job.round_end_offset)
            found += entries
            if complete:
                return found
        return [*found, *job.aborted]

    def _map_segment(
        self, segment: SegmentFile, offset_map: OffsetMap, transactions: CleanedTransactionMetadata
    ) -> bool:
        """Add a segment's keys to the map. Returns False if the map was full before the segment's end."""
        start = self._job.first_dirty_offset
        batches = self._positions_of_batches.begin()
        is_plain = segment.base_offset >= start
        for header, batch in self._batches(segment):
            self.stats.map_bytes_read += header.size
            last_offset = header.last_offset
            if last_offset < start:
                continue
            is_plain = is_plain and header.magic == 2 and not header.attributes & SPECIAL_BITS
            if is_plain:
                batches.add(header.base_offset, header.position)
            if header.magic != 2:
                if not has_valid_crc(batch, header):
                    raise BatchCorrupt(f"the crc of the message at offset {header.base_offset} is wrong")
                found = [
                    (record.key, offset)
                    for offset, record in open_legacy(header, batch, self._bytes_most)
                    if record.key is not None and offset >= start
                ]
                if not offset_map.has_room(len(found)):
                    return False
                offset_map.put([key for key, _ in found], [offset for _, offset in found])
            elif header.is_control:
                transactions.on_control(
                    header, key_of_control(open_body(header, batch, self._bytes_most), header.record_count)
                )
            elif not transactions.on_data(header) and header.record_count:
                if not offset_map.has_room(header.record_count):
                    return False
                self._map_batch(header, batch, offset_map)
            offset_map.latest_offset = last_offset
        if is_plain:
            self._positions_of_batches.add(segment.base_offset, batches)
        return True

    def _map_batch(self, header: BatchHeader, batch: memoryview, offset_map: OffsetMap) -> None:
        base, count = header.base_offset, header.record_count
        start = self._job.first_dirty_offset
        if not has_valid_crc(batch, header):
            # A damaged key could replace another one, and the batch is not opened again.
            raise BatchCorrupt(f"the crc of the batch at offset {base} is wrong")
        check_count(header)
        columns = Columns(open_body(header, batch, self._bytes_most), count)
        keys = columns.keys()
        offsets: Sequence[int]
        if header.last_offset_delta == count - 1:
            offsets = range(base, base + count)
        else:
            offsets = [base + delta for delta in columns.offset_deltas()]
        if columns.has_null_values:
            self._note_tombstones(base)
        if columns.has_null_keys or base < start:
            pairs = [
                (key, offset)
                for key, offset in zip(keys, offsets, strict=True)
                if key is not None and offset >= start
            ]
            offset_map.put([key for key, _ in pairs], [offset for _, offset in pairs])
        else:
            offset_map.put(cast("Sequence[bytes]", keys), offsets)

    def _note_tombstones(self, base_offset: int) -> None:
        if len(self._tombstone_batches) < TOMBSTONE_BATCHES_MOST:
            self._tombstone_batches.append(base_offset)

    def clean_group(self, group: Sequence[SegmentFile]) -> list[str]:
        """Write the group's cleaned segment, named after the group's first one. Returns the suffixes of its files.
        Raises what build_map raises."""
        job, stats, batch_filter = self._job, self.stats, self._filter
        assert batch_filter is not None
        base_offset = group[0].base_offset
        cleaned = CleanedSegment(
            self._disk, job.directory, base_offset, job.index_interval_bytes, self._read_bytes
        )
        self._transactions.keep_entry = cleaned.keep_entry
        try:
            modified_ms = 0
            for segment in map(self._stage, group):
                modified_ms = self._disk.modified_ms(segment.stem + LOG_SUFFIX)
                batch_filter.retain_legacy_deletes = modified_ms > self._legacy_horizon_ms
                for header, batch in self._worthy_batches(segment):
                    stats.bytes_read += header.size
                    kept = batch_filter.filter(header, batch)
                    if kept is not None:
                        cleaned.append(kept)
            self._pace(cleaned.size)
            stats.bytes_written += cleaned.size
            return cleaned.finish(modified_ms)
        except BaseException:
            cleaned.discard()
            raise

    def finish(self) -> None:
        """Nothing to release."""

    close = finish

    def _index_bytes(self, segment: SegmentFile, suffix: str) -> int:
        try:
            return self._disk.file_size(segment.stem + suffix)
        except FileNotFoundError:
            return 0

    def _batches(self, segment: SegmentFile, places: Places = ()) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches in these parts of the file. Without parts, all batches."""
        if segment.size:
            file = self._disk.open(segment.stem + LOG_SUFFIX)
            for start, end in places or ((0, segment.size),):
                yield from whole_batches(file, end, self._read_bytes, self._pace, start)

    def _worthy_batches(self, segment: SegmentFile) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of which records may be kept, and perhaps others."""
        kept_offsets = self._kept_offsets
        assert kept_offsets is not None
        if segment.end_offset - 1 > kept_offsets.end:
            return self._batches(segment)
        places = self._positions_of_batches.places(segment, kept_offsets.any_between, self._last_offsets)
        if places is None:
            return self._batches(segment)
        return self._batches(segment, places) if places else iter(())


class SegmentBatches:
    """One segment's batches in order."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def add(self, base_offset: int, position: int) -> None:
        self.offsets.append(base_offset)
        self.positions.append(position)


class BatchPositions:
    """Where the batches of mapped segments are."""

    __slots__ = ("_batches_of", "_room")

    def __init__(self) -> None:
        self._batches_of: dict[int, SegmentBatches] = {}
        self._room = POSITIONS_MOST

    def begin(self) -> SegmentBatches:
        return SegmentBatches()

    def add(self, base_offset: int, batches: SegmentBatches) -> None:
        """Keep the batches of the segment at a base offset. None of its batches may be transactional."""
        if len(batches.offsets) <= self._room:
            self._room -= len(batches.offsets)
            self._batches_of[base_offset] = batches

    def places(
        self, segment: SegmentFile, stays: Callable[[int, int], bool], last_offsets: Sequence[int]
    ) -> Places | None:
        """The parts of a segment to read. `stays` tells whether a record between two offsets is kept. A batch that
        contains one of the ascending `last_offsets` is read too. None if the segment is not known."""
        batches = self._batches_of.get(segment.base_offset)
        if batches is None:
            return None
        offsets = batches.offsets
        bounds = [*offsets, segment.end_offset]
        worth = [stays(first, end - 1) for first, end in pairwise(bounds)]
        for last_offset in last_offsets:
            at = bisect_right(offsets, last_offset) - 1
            if at >= 0 and last_offset < segment.end_offset:
                worth[at] = True
        found: list[tuple[int, int]] = []
        for (start, end), is_worth in zip(pairwise([*batches.positions, segment.size]), worth, strict=True):
            if is_worth:
                if found and start - found[-1][1] < GAP_BYTES:
                    start = found.pop()[0]
                found.append((start, end))
        return found


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
        self._index_interval_bytes = min(index_interval_bytes, INDEX_INTERVAL_MOST)
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
