"""The segments of one log in order: finding an offset, reading across segments, rolling, dropping.

This module covers everything that needs more than one segment. Bounds are given as offsets.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkacompat.log.log_segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, LogSegment
from kafkacompat.log.retention import NEVER_OLD, SegmentFacts
from kafkacompat.ports import EMPTY_RECORDS, FileSlice, HalfDone, LogRead, LogRefused
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.index import AbortedTxn
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.ports import Disk


DROPPED_AT_ONCE = 16
"""The most segments whose files are renamed in one step, at 0.1 to 0.5 ms each. A truncation or retention pass
takes several steps for more."""
DeleteLater = Callable[[Sequence[str], int], None]
"""(paths, delay in ms): remove files later."""


@contextmanager
def change_of_many(what: str) -> Iterator[None]:
    """Turn an error of the block into HalfDone: the log is neither in its old nor in its new state."""
    try:
        yield
    except (OSError, LogRefused, BatchCorrupt, MemoryError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EIO
        raise HalfDone(number, f"{what} has stopped half way: {error or 'no memory'}") from error


class SegmentList:
    """At least one segment; the last one is active. Offsets are absolute, sizes in bytes."""

    __slots__ = (
        "_aborted",
        "_bases",
        "_cache",
        "_closed_bytes",
        "_delete_later",
        "_disk",
        "_rebuild_later",
        "changes",
        "directory",
        "items",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[LogSegment],
        cache: IndexCache,
        delete_later: DeleteLater | None,
        rebuild_later: Callable[[LogSegment], None] | None = None,
    ) -> None:
        """`rebuild_later` is called with segments whose indexes are damaged. Without it they are rebuilt at once."""
        self._disk = disk
        self._cache = cache
        self.directory = directory
        self.items = segments
        self._bases = [segment.base_offset for segment in segments]
        self._closed_bytes = sum(segment.size for segment in segments[:-1])
        self._aborted: list[int] | None = None
        """See `_may_have_aborted`. None if it must be rebuilt, because segments were added or removed."""
        self._delete_later = delete_later
        self._rebuild_later = rebuild_later
        self.changes = 0
        """Counts removals and replacements of files. A search in another thread compares it afterwards."""
        for segment in segments:
            segment.rebuild_later = rebuild_later

    @property
    def active(self) -> LogSegment:
        return self.items[-1]

    def size(self) -> int:
        return self._closed_bytes + self.items[-1].size

    def facts(self, log_end_offset: int, *, by_time: bool) -> Iterator[SegmentFacts]:
        """The facts that retention needs, for as many of the oldest segments as one step may drop. Only known
        timestamps are included."""
        last = len(self.items) - 1
        for at, segment in enumerate(self.items[:DROPPED_AT_ONCE]):
            known = by_time and (at == last or segment.knows_its_age())
            yield SegmentFacts(
                segment.size,
                self.next_offset_of(at, log_end_offset),
                segment.retention_timestamp_ms() if known else NEVER_OLD,
                at == last,
            )

    def index_of(self, offset: int) -> int:
        """The index of the segment that contains an offset. 0 for offsets below the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def base_of(self, offset: int) -> int:
        return self._bases[self.index_of(offset)]

    def next_offset_of(self, index: int, log_end_offset: int) -> int:
        """The base of the next segment, or the log's end."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def from_offset(self, offset: int) -> Iterator[LogSegment]:
        """The segments from the one that contains the offset on."""
        return iter(self.items[self.index_of(offset) :])

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_bound_offset: int,
        minimum_one_batch: bool,
        log_end_offset: int,
    ) -> LogRead:
        """A slice of one segment that begins with the batch containing the offset. Nothing if that is at or above the
        bound."""
        items, bases = self.items, self._bases
        last = len(items) - 1
        # Most reads are of the active segment, up to the log's end.
        for index in range(last if offset >= bases[last] else self.index_of(offset), last + 1):
            segment = items[index]
            found = segment.find(offset)
            if found is None:
                continue
            position, batch_size = found
            next_offset = log_end_offset if index == last else bases[index + 1]
            if upper_bound_offset >= next_offset:
                available = segment.size - position
            else:
                available = self._bound_position(index, upper_bound_offset, log_end_offset) - position
            if available <= 0:
                break
            length = max_bytes
            if batch_size > max_bytes:
                if not minimum_one_batch:
                    return LogRead(EMPTY_RECORDS, True)
                length = batch_size
            if length < available:
                end_offset = segment.offset_above(position + length)
                if end_offset < 0:
                    end_offset = next_offset
            else:
                length, end_offset = available, next_offset
            if end_offset > upper_bound_offset:
                end_offset = upper_bound_offset
            return LogRead(FileSlice(segment.file, position, length), False, end_offset)
        return LogRead(EMPTY_RECORDS)

    def aborted(self, fetch_offset: int, upper_bound_offset: int, most: int) -> tuple[list[AbortedTxn], int]:
        """Entries that overlap [fetch offset, upper bound), ordered by their end, and the upper bound.

        If there are more than `most`, the upper bound is lower, but above the fetch offset. There may be more all the same:
        of transactions that were open together.
        """
        found: list[AbortedTxn] = []
        if upper_bound_offset <= fetch_offset:
            return found, upper_bound_offset
        bases = self._may_have_aborted()
        first = self.base_of(fetch_offset)
        for base_offset in bases[bisect_left(bases, first) :]:
            entries, complete = self.items[self.index_of(base_offset)].aborted.find(
                fetch_offset, upper_bound_offset, most - len(found)
            )
            found += entries
            if complete:
                break
        else:
            # The active segment's entries change with every marker, so they are not in the list.
            found += self.items[-1].aborted.find(fetch_offset, upper_bound_offset, most - len(found))[0]
        if len(found) >= most:
            # Transactions that ended after the last one began at or after this offset.
            end_offset = found[-1].last_stable_offset
            if fetch_offset < end_offset < upper_bound_offset:
                return [entry for entry in found if entry.first_offset < end_offset], end_offset
        return found, upper_bound_offset

    def _may_have_aborted(self) -> list[int]:
        """Base offsets of the closed segments that may have aborted transactions. A log may have many segments, and
        most have none."""
        if self._aborted is None:
            self._aborted = [
                segment.base_offset for segment in self.items[:-1] if not segment.aborted.has_none()
            ]
        return self._aborted

    def readable_bytes(self, offset: int, upper_bound_offset: int, log_end_offset: int) -> int:
        """Bytes from the batch that contains the offset to the bound, over all segments."""
        total = 0
        for index in range(self.index_of(offset), len(self.items)):
            if self._bases[index] >= upper_bound_offset:
                break
            limit = self._bound_position(index, upper_bound_offset, log_end_offset)
            if total:
                total += limit
            elif (found := self.items[index].find(offset)) is not None:
                total += max(limit - found[0], 0)
        return total

    def _bound_position(self, index: int, bound: int, log_end_offset: int) -> int:
        segment = self.items[index]
        if bound >= self.next_offset_of(index, log_end_offset):
            return segment.size
        found = segment.find(bound)
        return segment.size if found is None else found[0]

    def roll(self, base_offset: int, index_interval_bytes: int, now_ms: int) -> LogSegment:
        """Close the active segment and begin a new one. An empty active segment at that base stays."""
        active = self.items[-1]
        if active.base_offset == base_offset and not active.size:
            return active
        active.become_inactive()
        segment = self._new(base_offset, index_interval_bytes, now_ms)
        self._closed_bytes += active.size
        if self._aborted is not None and not active.aborted.has_none():
            self._aborted.append(active.base_offset)
        self.items.append(segment)
        self._bases.append(base_offset)
        return segment

    def _new(
        self, base_offset: int, index_interval_bytes: int, now_ms: int, *, create: bool = True
    ) -> LogSegment:
        segment = LogSegment(
            self._disk, self.directory, base_offset, index_interval_bytes, now_ms, self._cache, create=create
        )
        segment.rebuild_later = self._rebuild_later
        return segment

    def relocate(self, directory: str) -> None:
        """Adopt the directory's new name."""
        self.directory = directory
        self.changes += 1
        for segment in self.items:
            segment.relocate(directory)

    def look_at(self, offset: int) -> int:
        """Read what a truncation at the offset would read, while it can still be refused. Returns the new end, as far as
        batches with producers are concerned."""
        keep, offset = self._kept_of_truncation(offset)
        if keep < len(self.items):
            self.try_descriptor()
        return self.items[keep - 1].look_at(offset)

    def try_descriptor(self) -> None:
        """Raise OSError if descriptors are short. A truncation that drops segments needs one when it has begun, and a lack of
        them passes."""
        with suppress(FileNotFoundError):  # then another one has taken it away, and it need not be dropped
            self._disk.open(self.items[-1].stem + LOG_SUFFIX).close()

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop everything from the batch that contains the offset on. Returns the new end.

        If that takes more segments than one step may drop, the end is above the offset, as if truncated there. The
        caller may call again.
        """
        self.changes += 1
        keep, offset = self._kept_of_truncation(offset)
        is_over_several = keep < len(self.items)
        self._drop_newest(keep)
        if is_over_several:
            # Sync before the cut. Otherwise a power loss could bring the old names back, and leave a gap that no start
            # detects.
            self._disk.sync_directory(self.directory)
        return self.items[-1].truncate_to(offset, now_ms)

    def _kept_of_truncation(self, offset: int) -> tuple[int, int]:
        """How many segments stay, and the offset where the last of them is cut."""
        keep = self.index_of(offset) + 1
        least = len(self.items) - DROPPED_AT_ONCE
        if keep < least and self._delete_later is not None:
            return least, self._bases[least]
        return keep, offset

    def goes_in_one_step(self) -> bool:
        """Whether one step may drop all segments."""
        return len(self.items) <= DROPPED_AT_ONCE or self._delete_later is None

    def start_anew(self, offset: int, index_interval_bytes: int, now_ms: int) -> None:
        """Remove all segments. One empty segment at the offset remains."""
        self.changes += 1
        self._drop_newest(0)
        # Otherwise a power loss could bring the old names back beside the new one, with a gap that no start detects.
        self._disk.sync_directory(self.directory)
        self.items.append(self._new(offset, index_interval_bytes, now_ms))
        self._bases.append(offset)
        self._closed_bytes = 0

    def _drop_newest(self, keep: int) -> None:
        """Drop segments from the last one backwards, so that a crash leaves the beginning of the log."""
        dropped = self.items[keep:]
        renamed: list[str] = []
        for segment in reversed(dropped):
            renamed += self._set_aside(segment)
        del self.items[keep:], self._bases[keep:]
        self._aborted = None
        self._closed_bytes = sum(segment.size for segment in self.items[:-1])
        self.delete_later(renamed, 0)

    def drop_oldest(self, count: int, delay_ms: int) -> None:
        """Rename the files of the oldest segments to `.deleted`, to be removed later.

        After an OSError the segments before the failing one are gone. The failing one is gone too if its .log file was
        renamed.
        """
        renamed: list[str] = []
        self._aborted = None
        try:
            for segment in self.items[:count]:
                for path in segment.paths():
                    self._disk.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
                    self._forget_oldest(segment)
                # Somebody else may have removed all of its files.
                self._forget_oldest(segment)
        finally:
            self.delete_later(renamed, delay_ms)

    def _forget_oldest(self, segment: LogSegment) -> None:
        if self.items[0] is segment:
            del self.items[0], self._bases[0]
            self._closed_bytes -= segment.size
            segment.retire()

    def _set_aside(self, segment: LogSegment) -> list[str]:
        renamed = []
        for path in segment.paths():
            self._disk.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
        segment.retire()
        return renamed

    def replace(
        self, replaced: Sequence[LogSegment], suffixes: Sequence[str], now_ms: int, delay_ms: int
    ) -> LogSegment:
        """Replace neighbouring segments by the cleaned segment with the first one's base. The old files are removed
        later.

        `suffixes` has the suffixes of the new files, `.log` first. After a crash at any point, log_loader.py ends with
        either all old or all new files. On OSError nothing has changed; on HalfDone something has.
        """
        first = replaced[0]
        at = self.index_of(first.base_offset)
        self._disk.rename(first.stem + suffixes[0] + CLEANED_SUFFIX, first.stem + suffixes[0] + SWAP_SUFFIX)
        self.changes += 1
        with change_of_many(f"the swap of {first.stem}"):
            for suffix in suffixes[1:]:
                self._disk.rename(first.stem + suffix + CLEANED_SUFFIX, first.stem + suffix + SWAP_SUFFIX)
            renamed: list[str] = []
            for segment in replaced:
                renamed += self._set_aside(segment)
            for suffix in suffixes:
                self._disk.rename(first.stem + suffix + SWAP_SUFFIX, first.stem + suffix)
            new = self._new(first.base_offset, first.index_interval_bytes, now_ms, create=False)
        self._closed_bytes += new.size - sum(segment.size for segment in replaced)
        self._aborted = None
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
