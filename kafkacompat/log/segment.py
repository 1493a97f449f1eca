"""One segment: a .log file of batches with three indexes. It can be cut, rolled, closed and renamed.

The indexes of a closed segment are only in the node's cache, not in the segment. Its largest timestamp is kept once it
is known.
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
    """SegmentBatches with the operations of the segment's later life."""

    __slots__ = ()

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

    def is_full(self, index_bytes: int) -> bool:
        """Whether an index is full. Kafka keeps one slot of the time index for the entry written when the segment is
        closed."""
        offsets, times = self._search(lambda offsets, times: (len(offsets), len(times)))
        return offsets >= index_bytes // 8 or times >= max(index_bytes // 12 - 1, 1)

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

    def become_inactive(self) -> None:
        """Add the last entry of the time index, which retention uses. Write all index bytes to the files and free
        their memory."""
        self._note_largest()
        self.write_indexes()
        self.let_go()

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
