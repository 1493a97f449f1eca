"""One segment: a .log file of batches with its three indexes, which is cut, rolled, closed and renamed.

Of a closed segment no index is in memory but what the node's cache has of it; its largest timestamp is kept once it is known.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from kafkacompat.log.aborted import TXN_INDEX_SUFFIX
from kafkacompat.log.segment_batches import LOG_SUFFIX, SegmentBatches, file_stem
from kafkacompat.log.segment_indexes import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from kafkacompat.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from kafkacompat.log.offset_index import OffsetIndex
    from kafkacompat.log.time_index import TimeIndex


class Segment(SegmentBatches):
    """As SegmentBatches, until it goes."""

    __slots__ = ()

    def first_batch_timestamp(self) -> int | None:
        """Max timestamp of the first batch; None when the segment is empty."""
        if self.rolling_timestamp_ms is None and self.size:
            for header in self.headers(chunk=HEADER_SIZE):
                self.rolling_timestamp_ms = header.max_timestamp_ms
                break
        return self.rolling_timestamp_ms

    def retention_timestamp_ms(self) -> int:
        """The largest record timestamp, else when the file was last written. Reads files unless `knows_its_age`."""
        timestamp_ms = self.largest_timestamp()[0]
        if timestamp_ms >= 0:
            return timestamp_ms
        return self.modified_ms if self.modified_ms >= 0 else self._disk.modified_ms(self.stem + LOG_SUFFIX)

    def knows_its_age(self) -> bool:
        return self.knows_largest_timestamp and (self.max_timestamp_ms >= 0 or self.modified_ms >= 0)

    def knows_ages(self, *, largest: bool, first: bool) -> bool:
        """What `learn_ages` reads."""
        return not self.size or (
            (not largest or self.knows_its_age()) and (not first or self.rolling_timestamp_ms is not None)
        )

    def learn_ages(self, *, largest: bool, first: bool) -> None:
        """Of a closed segment: its largest timestamp, that of its first batch. Keeps no file open that was not."""
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

    def is_full(self, index_bytes: int) -> bool:
        """Whether an index has no room: Kafka keeps one slot of the time index for the entry made on closing."""
        offsets, times = self._search(lambda offsets, times: (len(offsets), len(times)))
        return offsets >= index_bytes // 8 or times >= max(index_bytes // 12 - 1, 1)

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop batches from the one that holds the offset on. Where the log ends then: a batch cut in its middle is gone whole."""
        found = self.find(offset)
        end = offset

        def truncate(offsets: OffsetIndex, times: TimeIndex) -> None:
            offsets.truncate_to(offset)
            times.truncate_to(offset)

        self._search(truncate)
        self.aborted.truncate_to(offset)
        if found is not None:
            end = min(offset, next(iter(self.headers(found[0], chunk=HEADER_SIZE))).base_offset)
            self.truncations += 1
            self.file.truncate(found[0])
            self.size = found[0]
            kept = bisect_left(self._tail_positions, found[0])
            del self._tail_offsets[kept:], self._tail_positions[kept:]
        self.bytes_since_index_entry = 0
        self.max_timestamp_ms, self.max_timestamp_offset = self._search(lambda _, times: times.last_entry())
        self.knows_largest_timestamp = True
        if self.size:
            # What lies before the last entry of the offset index is in the time index.
            for header in self._last_headers():
                if header.max_timestamp_ms > self.max_timestamp_ms:
                    self.max_timestamp_ms, self.max_timestamp_offset = (
                        header.max_timestamp_ms,
                        header.last_offset,
                    )
        else:
            self.created_ms = now_ms
            self.rolling_timestamp_ms = None
        # The index files are brought up to date when they are next written: to write is what a full disk refuses, half way.
        return end

    def cut(self, size: int) -> None:
        """Shorten the log file to a size; the indexes are the caller's to build anew."""
        if size < self.size:
            self.truncations += 1
            self.file.truncate(size)
            self.size = size
        self._forget_tail()

    def become_inactive(self) -> None:
        """The last entry of the time index, by which retention goes, and all index bytes into their files and out of memory."""
        self._note_largest()
        self.write_indexes()
        self.let_go()

    def relocate(self, directory: str) -> None:
        """The directory has another name now; open files do not notice."""
        self.stem = file_stem(directory, self.base_offset)
        self.aborted.relocate(self.stem)
        self.indexes.relocate(self.stem)

    def let_go(self) -> None:
        """Nothing is appended for now: what the index files have does not stay in memory, nor where the last batches lie."""
        self.indexes.let_go()
        self.aborted.let_go()
        self._forget_tail()

    def names(self) -> list[str]:
        """The paths of its files, whether they exist or not."""
        return [
            self.stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        ]

    def paths(self) -> list[str]:
        """Those of its files that exist."""
        return [path for path in self.names() if self._disk.exists(path)]

    def release(self) -> None:
        """Let go of the file; it closes when the last slice that refers to it is gone."""
        self._file = None
