"""The blocking part of a cleaning: read the dirty part into an offset map, then rewrite each group of segments.

It reads closed files by name and feeds the filter and the map. The UnifiedLog, threads and clocks are unknown here.
`pace` is called with the number of bytes moved, and may wait or raise CleaningStopped.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from kafkacompat.log.aborted import read_txn_index
from kafkacompat.log.cleaner.cleaned_segment import CleanedSegment
from kafkacompat.log.cleaner.filtering import BatchFilter, check_count, key_of_control, open_body, open_legacy
from kafkacompat.log.cleaner.job import CleaningJob, SegmentFile, group_segments
from kafkacompat.log.cleaner.noted import NotedSegments, Places
from kafkacompat.log.cleaner.offset_map import OffsetMap
from kafkacompat.log.cleaner.survivors import TOMBSTONE_BATCHES_MOST, Survivors
from kafkacompat.log.cleaner.transactions import CleanedTransactions
from kafkacompat.log.log_segment import LOG_SUFFIX
from kafkacompat.log.scan import whole_batches
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
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
    from kafkacompat.log.transaction_index import AbortedTxn
    from kafkacompat.ports import Disk
    from kafkacompat.records.batch import BatchHeader

Pace = Callable[[int], None]
SPECIAL_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
UNREADABLE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
LEAST_READ_BYTES = 64 * 1024


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


class CleaningWork:
    """Call `build_map`, then `clean_group` for each of `groups`. Blocks; one thread at a time."""

    def __init__(
        self, disk: Disk, job: CleaningJob, pace: Pace, bytes_most: int = UNPACKED_BYTES_MAX
    ) -> None:
        """`bytes_most` bounds what a batch may expand to."""
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
        self._transactions = CleanedTransactions((), 0)
        self._survivors: Survivors | None = None
        self._legacy_horizon_ms = 0
        self._tombstone_batches = array("q")
        self._noted = NotedSegments()
        self.groups: list[list[SegmentFile]] = []
        self.end_offset = job.first_dirty_offset
        """The end of the clean part after this cleaning."""
        self.stats = CleanerStats()

    def build_map(self) -> None:
        """Raises CleaningStopped, TooLargeHere, OSError, or one of UNREADABLE for data that cannot be read."""
        job = self._job
        offset_map = self._map = OffsetMap(job.limits.map_bytes, job.limits.load_factor)
        aborted = self._aborted()
        transactions = CleanedTransactions(aborted, job.first_dirty_offset)
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            if not self._map_segment(segment, offset_map, transactions):
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
        if clean:
            modified_ms = self._disk.modified_ms(clean[-1].stem + LOG_SUFFIX)
            self._legacy_horizon_ms = modified_ms - job.delete_retention_ms
        self._transactions = CleanedTransactions(aborted, job.segments[0].base_offset)
        survivors = self._survivors = Survivors(
            offset_map.offsets(),
            job.first_dirty_offset,
            offset_map.latest_offset,
            self._tombstone_batches,
            offset_map.marks_most,
        )
        self._filter = BatchFilter(
            offset_map,
            survivors,
            self._transactions,
            job.last_records,
            round_end_offset=job.round_end_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
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
        self, segment: SegmentFile, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Add a segment's keys to the map. Returns False if the map was full before the segment's end."""
        start = self._job.first_dirty_offset
        note = self._noted.begin()
        is_plain = segment.base_offset >= start
        for header, batch in self._batches(segment):
            self.stats.map_bytes_read += header.size
            last_offset = header.last_offset
            if last_offset < start:
                continue
            is_plain = is_plain and header.magic == 2 and not header.attributes & SPECIAL_BITS
            if is_plain:
                note.batch(header.base_offset, header.position)
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
            self._noted.add(segment.base_offset, note)
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
            for segment in group:
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
        survivors = self._survivors
        assert survivors is not None
        if segment.end_offset - 1 > survivors.end:
            return self._batches(segment)
        places = self._noted.places(segment, survivors.any_between, self._last_offsets)
        if places is None:
            return self._batches(segment)
        return self._batches(segment, places) if places else iter(())
