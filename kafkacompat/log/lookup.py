"""Finds offsets by timestamp in worker threads, and the aborted transactions of a range.

The searches are read-only and have no bounds of their own; the requests set them. They follow KIP-79 and KIP-734 (max
timestamp). A search by time may read a file of every segment and open batches. So a worker thread runs it on the state
of the log at its start. Afterwards the log checks whether that state still holds (finish_lookup).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from kafkacompat.log import file_records
from kafkacompat.log.index import MAX_OFFSET, IndexCorrupt, OffsetIndex, TimeIndex
from kafkacompat.log.log_segment import LOG_SUFFIX, SCAN_CHUNK, LogSegment
from kafkacompat.log.segment_indexes import last_time_entry
from kafkacompat.ports import AbortedTransaction, TimestampOffset
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.read import BYTES_A_UNIT, find_by_time
from kafkacompat.records.record import RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.log.segment_list import SegmentList
    from kafkacompat.ports import Disk

UNREADABLE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
ALL_AT_ONCE = 1 << 62
HEADER_COST = 16
"""The cost of a batch that is passed over, in units of `find_by_time`."""

T = TypeVar("T")
Pieces: TypeAlias = Generator[int, None, T]


class Learned(NamedTuple):
    """The largest timestamp of a segment for which it was unknown."""

    segment: LogSegment
    timestamp_ms: int
    offset: int


class TimestampLookup:
    """One search. `run` blocks, in a worker thread. The results are for the loop's thread."""

    __slots__ = (
        "_active_indexes",
        "_active_size",
        "_active_timestamp_ms",
        "_disk",
        "_log_start_offset",
        "_pieces",
        "_segments",
        "_timestamp_ms",
        "abandoned",
        "changes",
        "damaged",
        "error",
        "found",
        "learned",
        "moved",
    )

    def __init__(
        self, disk: Disk, segments: SegmentList, timestamp_ms: int | None, log_start_offset: int
    ) -> None:
        """`timestamp_ms` None searches for the first record with the largest timestamp of the log."""
        self._disk = disk
        self._timestamp_ms = timestamp_ms
        self._log_start_offset = log_start_offset
        self._segments: Sequence[LogSegment] = list(segments.from_offset(log_start_offset))
        self.changes = segments.changes
        active = segments.active
        # The active segment grows during the search. Changes of closed segments are counted in `changes`.
        self._active_size = active.size
        self._active_timestamp_ms = active.largest_timestamp()[0]
        self._active_indexes = active.index_views()
        self.abandoned = False
        """Set when the caller no longer wants an answer."""
        self.found: TimestampOffset | None = None
        self.learned: list[Learned] = []
        self.moved = False
        """A file was missing, for example deleted by retention."""
        self.damaged: LogSegment | None = None
        """The segment whose indexes are damaged."""
        self.error: OSError | BatchCorrupt | RecordMalformed | DecompressionFailed | None = None
        self._pieces = self._search()

    def run(self, most: int = ALL_AT_ONCE) -> bool:
        """Do a piece of the search, in units of about a record. Returns whether the search is over."""
        try:
            for cost in self._pieces:
                most -= cost
                if most <= 0:
                    return False
        except FileNotFoundError as error:
            self.moved, self.error = True, error
        except (OSError, *UNREADABLE) as error:
            self.error = error
        return True

    def give_up(self) -> None:
        """Close the file, and free what is decompressed."""
        self._pieces.close()

    def _search(self) -> Pieces[None]:
        if self._timestamp_ms is None:
            self.found = yield from self._of_largest()
        else:
            self.found = yield from self._first_at_or_after(self._segments, self._timestamp_ms)

    def _of_largest(self) -> Pieces[TimestampOffset | None]:
        best: LogSegment | None = None
        best_ms = -1
        for segment in self._segments:
            timestamp_ms = self._largest(segment)
            if timestamp_ms > best_ms:
                best, best_ms = segment, timestamp_ms
            yield HEADER_COST
        # If no record has a timestamp, the first one is the answer, as in Kafka.
        return (yield from self._first_at_or_after(self._segments if best is None else [best], best_ms))

    def _first_at_or_after(
        self, segments: Sequence[LogSegment], timestamp_ms: int
    ) -> Pieces[TimestampOffset | None]:
        for segment in segments:
            if self.abandoned:
                break
            yield HEADER_COST
            if self._largest(segment) >= timestamp_ms:
                found = yield from self._within(segment, timestamp_ms)
                if found is not None or self.damaged is not None:
                    return found
        return None

    def _largest(self, segment: LogSegment) -> int:
        if segment is self._segments[-1]:
            return self._active_timestamp_ms
        if segment.knows_largest_timestamp or self.abandoned or self.damaged is not None:
            return segment.max_timestamp_ms
        try:
            found = last_time_entry(self._disk, segment.stem, segment.base_offset)
        except (IndexCorrupt, FileNotFoundError):
            self._found_damaged(segment)
            return -1
        self.learned.append(Learned(segment, *found))
        return found[0]

    def _within(self, segment: LogSegment, timestamp_ms: int) -> Pieces[TimestampOffset | None]:
        try:
            offsets, times = self._indexes(segment)
            known, start = offsets.lookup(
                max(before_which_none_is_as_late(times, timestamp_ms), self._log_start_offset)
            )
        except (IndexCorrupt, FileNotFoundError):
            self._found_damaged(segment)
            return None
        size = self._active_size if segment is self._segments[-1] else segment.size
        file = self._disk.open(segment.stem + LOG_SUFFIX)
        try:
            for header in file_records.headers(file, start, size, SCAN_CHUNK):
                yield HEADER_COST
                if self.abandoned:
                    return None
                if known >= 0:
                    if header.last_offset > known:
                        self.damaged = segment
                        return None
                    if header.last_offset == known:
                        known = -1
                if header.max_timestamp_ms < timestamp_ms or header.last_offset < self._log_start_offset:
                    continue
                batch = file.read_cold(header.position, header.size)
                yield header.size // BYTES_A_UNIT
                found = yield from find_by_time(batch, header, timestamp_ms, self._log_start_offset)
                if found is not None:
                    return TimestampOffset(*found, header.leader_epoch)
        except BatchCorrupt:
            if not start or known < 0:
                raise
            self.damaged = segment
        finally:
            file.close()
        return None

    def _found_damaged(self, segment: LogSegment) -> None:
        """Record that a segment's index is damaged. Raises FileNotFoundError if the whole segment is gone."""
        if not self._disk.exists(segment.stem + LOG_SUFFIX):
            raise FileNotFoundError(segment.stem + LOG_SUFFIX)
        self.damaged = segment

    def _indexes(self, segment: LogSegment) -> tuple[OffsetIndex, TimeIndex]:
        if segment is self._segments[-1]:
            return self._active_indexes
        return segment.indexes.views(segment.size)


def before_which_none_is_as_late(times: TimeIndex, timestamp_ms: int) -> int:
    """An offset: no batch that ends before its entry in the offset index has a timestamp as late as the given one.

    Both indexes get entries at the same moments. The time index gets an entry whenever the largest timestamp has grown
    since the previous moment. So the batch that raised it above the target is after the last entry that is not above
    the target.
    """
    (before_ms, before_offset), after = times.around(timestamp_ms)
    if before_ms == timestamp_ms:
        return before_offset
    return MAX_OFFSET if after is None else after[1] - 1


def aborted_transactions(
    segments: SegmentList, fetch_offset: int, upper_bound_offset: int, most: int
) -> tuple[list[AbortedTransaction], int]:
    """As Log.aborted_transactions. Consumers rely on the order."""
    found, end_offset = segments.aborted(fetch_offset, upper_bound_offset, most)
    found.sort(key=lambda entry: (entry.first_offset, entry.last_offset))
    return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found], end_offset
