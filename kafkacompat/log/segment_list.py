"""The segments of one log in order: where an offset lies, reading across them, rolling, dropping.

Duty: everything that needs more than one segment and nothing but segments. Must not know: producers, epochs, high
watermarks (bounds are given as offsets).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.log.changes import change_of_many
from kafkacompat.log.retention import SegmentFacts
from kafkacompat.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, Segment
from kafkacompat.ports import EMPTY_RECORDS, FileSlice, LogRead

if TYPE_CHECKING:
    from kafkacompat.log.index import AbortedEntry
    from kafkacompat.ports import Disk

TXN_INDEXES_HELD = 8
"""Closed segments of a log whose aborted transactions stay in memory: transactions reach over segments, and a reader comes by
again and again."""

DeleteLater = Callable[[Sequence[str], int], None]
"""(paths, delay in ms): remove files some time later."""


class SegmentList:
    """At least one segment; the last one is active. Offsets absolute, sizes in bytes."""

    __slots__ = (
        "_bases",
        "_delete_later",
        "_disk",
        "_indexed",
        "_rolled",
        "_txn_indexed",
        "directory",
        "items",
    )

    def __init__(
        self, disk: Disk, directory: str, segments: list[Segment], delete_later: DeleteLater | None
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.items = segments
        self._bases = [segment.base_offset for segment in segments]
        self._delete_later = delete_later
        self._indexed: Segment | None = None
        """The one old segment whose index entries stay in memory: a bound on what readers of old data cost."""
        self._rolled: Segment | None = None
        """The last one closed by a roll: it has its entries in memory from when it was written, and readers at the end near it."""
        self._txn_indexed: list[Segment] = []
        """TXN_INDEXES_HELD at most, the one least recently read first."""

    @property
    def active(self) -> Segment:
        return self.items[-1]

    def size(self) -> int:
        return sum(segment.size for segment in self.items)

    def facts(self, log_end_offset: int, *, by_time: bool) -> list[SegmentFacts]:
        """What retention looks at; the timestamps only if it goes by time."""
        return [
            SegmentFacts(
                segment.size,
                self.next_offset_of(at, log_end_offset),
                segment.retention_timestamp_ms() if by_time else -1,
            )
            for at, segment in enumerate(self.items)
        ]

    def index_of(self, offset: int) -> int:
        """Of the segment that holds an offset (the first one for offsets below it)."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def base_of(self, offset: int) -> int:
        return self._bases[self.index_of(offset)]

    def next_offset_of(self, index: int, log_end_offset: int) -> int:
        """The base of the segment after this one, or the log's end."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Segments from the one that holds the offset on."""
        return iter(self.items[self.index_of(offset) :])

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_bound_offset: int,
        minimum_one_batch: bool,
        log_end_offset: int,
    ) -> LogRead:
        """A slice of one segment from the batch that holds the offset on, or nothing below the bound."""
        for index in range(self.index_of(offset), len(self.items)):
            segment = self.items[index]
            found = self._find(index, offset)
            if found is None:
                continue
            position, batch_size = found
            limit = self._bound_position(index, upper_bound_offset, log_end_offset)
            available = limit - position
            if available <= 0:
                break
            length = max_bytes
            if batch_size > max_bytes:
                if not minimum_one_batch:
                    return LogRead(EMPTY_RECORDS, True)
                length = batch_size
            end_offset = -1
            if length < available:
                end_offset = segment.offset_above(position + length)
            if end_offset < 0:
                end_offset = self.next_offset_of(index, log_end_offset)
            return LogRead(
                FileSlice(segment.file, position, min(length, available)),
                end_offset=min(end_offset, upper_bound_offset),
            )
        return LogRead(EMPTY_RECORDS)

    def aborted(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedEntry]:
        """Entries that overlap [fetch offset, upper bound), in the order of their ends."""
        found: list[AbortedEntry] = []
        if upper_bound_offset <= fetch_offset:
            return found
        for index in range(self.index_of(fetch_offset), len(self.items)):
            segment = self.items[index]
            entries, complete = segment.aborted.find(fetch_offset, upper_bound_offset)
            if segment.aborted.is_held and index < len(self.items) - 1:
                self._hold_aborted(segment)
            found += entries
            if complete:
                break
        return found

    def _hold_aborted(self, segment: Segment) -> None:
        held = self._txn_indexed
        if segment in held:
            held.remove(segment)
        elif len(held) == TXN_INDEXES_HELD:
            held.pop(0).aborted.forget()
        held.append(segment)

    def readable_bytes(self, offset: int, upper_bound_offset: int, log_end_offset: int) -> int:
        """Bytes from the batch that holds the offset to the bound, over all segments."""
        total = 0
        for index in range(self.index_of(offset), len(self.items)):
            if self._bases[index] >= upper_bound_offset:
                break
            limit = self._bound_position(index, upper_bound_offset, log_end_offset)
            if total:
                total += limit
            elif (found := self._find(index, offset)) is not None:
                total += max(limit - found[0], 0)
        return total

    def _find(self, index: int, offset: int) -> tuple[int, int] | None:
        segment = self.items[index]
        if index < len(self.items) - 1 and segment is not self._indexed:
            if self._indexed is not None and self._indexed is not self.items[-1]:
                self._indexed.forget_indexes()
            self._indexed = segment
        return segment.find(offset)

    def _bound_position(self, index: int, bound: int, log_end_offset: int) -> int:
        segment = self.items[index]
        if bound >= self.next_offset_of(index, log_end_offset):
            return segment.size
        found = self._find(index, bound)
        return segment.size if found is None else found[0]

    def roll(self, base_offset: int, index_interval_bytes: int, now_ms: int) -> Segment:
        """Close the active segment and begin one; when the active one is empty at that base, it stays."""
        active = self.items[-1]
        if active.base_offset == base_offset and not active.size:
            return active
        active.become_inactive()
        rolled = self._rolled
        if rolled is not None and rolled is not self._indexed and rolled is not active:
            rolled.forget_indexes()
        self._rolled = active
        segment = Segment(self._disk, self.directory, base_offset, index_interval_bytes, now_ms, create=True)
        self.items.append(segment)
        self._bases.append(base_offset)
        return segment

    def relocate(self, directory: str, delete_later: DeleteLater) -> None:
        """The directory has another name now, and what is dropped from here on goes some time later."""
        self.directory = directory
        self._delete_later = delete_later
        for segment in self.items:
            segment.relocate(directory)

    def look_at(self, offset: int) -> None:
        """Read what a truncation there would read, while it can still be refused."""
        self.items[self.index_of(offset)].find(offset)

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop everything from the batch that holds the offset on; files of dropped segments go at once. The end then."""
        while len(self.items) > 1 and self.items[-1].base_offset > offset:
            self._bases.pop()
            self._remove(self.items.pop())
        return self.items[-1].truncate_to(offset, now_ms)

    def start_anew(self, offset: int, index_interval_bytes: int, now_ms: int) -> None:
        """Remove all segments; one empty segment at the offset remains."""
        for segment in self.items:
            self._remove(segment)
        self.items[:] = [
            Segment(self._disk, self.directory, offset, index_interval_bytes, now_ms, create=True)
        ]
        self._bases[:] = [offset]

    def drop_oldest(self, count: int, delay_ms: int) -> None:
        """Rename the files of the oldest segments to `.deleted` and leave them to be removed later.

        After an OSError those before the one that met it have gone, and that one too if its log is renamed.
        """
        renamed: list[str] = []
        try:
            for segment in self.items[:count]:
                for path in segment.paths():
                    self._disk.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
                    if self.items[0] is segment:
                        del self.items[0], self._bases[0]
                        segment.release()
        finally:
            self.delete_later(renamed, delay_ms)

    def replace(
        self, replaced: Sequence[Segment], suffixes: Sequence[str], now_ms: int, delay_ms: int
    ) -> Segment:
        """Put the cleaned segment at the first one's base in the place of these neighbours, whose files go later.

        `suffixes`: of its files, `.log` first. Whatever name a crash leaves, recovery.py ends either with all of the old
        files or with all of the new. OSError: nothing has changed; HalfDone: it has.
        """
        first = replaced[0]
        at = self.index_of(first.base_offset)
        self._disk.rename(first.stem + suffixes[0] + CLEANED_SUFFIX, first.stem + suffixes[0] + SWAP_SUFFIX)
        with change_of_many(f"the swap of {first.stem}"):
            for suffix in suffixes[1:]:
                self._disk.rename(first.stem + suffix + CLEANED_SUFFIX, first.stem + suffix + SWAP_SUFFIX)
            renamed: list[str] = []
            for segment in replaced:
                for path in segment.paths():
                    self._disk.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
                segment.release()
                if segment is self._indexed:
                    self._indexed = None
            for suffix in suffixes:
                self._disk.rename(first.stem + suffix + SWAP_SUFFIX, first.stem + suffix)
            new = Segment(
                self._disk,
                self.directory,
                first.base_offset,
                first.index_interval_bytes,
                now_ms,
                create=False,
            )
        self.items[at : at + len(replaced)] = [new]
        self._bases[at : at + len(replaced)] = [new.base_offset]
        self.delete_later(renamed, delay_ms)
        return new

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        if self._delete_later is not None:
            self._delete_later(paths, delay_ms)
            return
        for path in paths:
            self._disk.remove(path)

    def _remove(self, segment: Segment) -> None:
        for path in segment.paths():
            self._disk.remove(path)
        segment.release()
