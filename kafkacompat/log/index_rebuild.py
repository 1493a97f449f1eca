"""Rebuilds the damaged indexes of a segment in the background, while its log stays in use.

A worker thread reads the segment. Afterwards the new files are put in place, if the segment has not changed. Until
then reads that need the indexes are refused, and clients retry. Files are found by their paths, which another topic of
the same name takes over: so nothing is put in place for a log that is not served any more.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.log_segment import LOG_SUFFIX, LogSegment
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, REBUILT_SUFFIX, TIME_INDEX_SUFFIX
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Disk


class IndexRebuild:
    """`run` blocks and changes nothing of the loop's. `finish` runs in the loop's thread."""

    def __init__(
        self, disk: Disk, log: UnifiedLog, segment: LogSegment, is_served: Callable[[UnifiedLog], bool]
    ) -> None:
        self._disk = disk
        self._is_served = is_served
        self.log = log
        self.segment = segment
        self._stem = segment.stem
        self._size = segment.size
        self._truncations = segment.truncations
        self.error: OSError | BatchCorrupt | None = None
        self._rebuilt: LogSegment | None = None

    def run(self) -> None:
        segment = self.segment
        try:
            own = LogSegment(
                self._disk,
                posixpath.dirname(self._stem),
                segment.base_offset,
                segment.index_interval_bytes,
                segment.created_ms,
                IndexCache(0),
                create=False,
            )
            own.size = min(own.size, self._size)
            own.build_indexes_beside()
        except (OSError, BatchCorrupt) as error:
            self.error = error
        except MemoryError:
            # It passes. Reads ask again when this is done, and not before.
            self.error = OSError(errno.ENOMEM, "no memory to build the indexes anew", self._stem)
        else:
            self._rebuilt = own

    def finish(self) -> bool:
        """Put the new indexes in place. Returns whether the segment has sound indexes again. Raises OSError."""
        own, segment = self._rebuilt, self.segment
        if isinstance(self.error, OSError):
            raise self.error
        is_as_walked = segment.size == self._size and segment.truncations == self._truncations
        if is_as_walked and self.error is not None:
            segment.damage = str(self.error)
        if own is not None and is_as_walked and self.is_wanted():
            segment.take_rebuilt_indexes()
            segment.note_largest_timestamp(own.max_timestamp_ms, own.max_timestamp_offset)
            return True
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._stem + suffix + REBUILT_SUFFIX)
        return False

    def is_wanted(self) -> bool:
        """Whether the segment still belongs to its log, and the log is served under the same name."""
        return (
            self.segment.stem == self._stem
            and self._is_served(self.log)
            and any(one is self.segment for one in self.log.segments)
        )


class IndexRebuilds:
    """The segments of a node whose indexes wait to be rebuilt. Bounded by the number of segments."""

    def __init__(
        self,
        disk: Disk,
        note: Callable[[str], None],
        is_served: Callable[[UnifiedLog], bool] = lambda log: True,
    ) -> None:
        self._disk = disk
        self._note = note
        self._is_served = is_served
        self._waiting: dict[LogSegment, UnifiedLog] = {}
        self._told: Callable[[], None] = lambda: None

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called when a segment waits."""
        self._told = told
        if self._waiting:
            told()

    def report(self, log: UnifiedLog, segment: LogSegment) -> None:
        if segment not in self._waiting:
            self._note(
                f"Found a corrupted index file corresponding to log file {segment.stem}{LOG_SUFFIX}, "
                "rebuilding index files"
            )
            self._waiting[segment] = log
            self._told()

    def begin(self) -> IndexRebuild | None:
        while self._waiting:
            segment, log = next(iter(self._waiting.items()))
            if self._is_served(log):
                return IndexRebuild(self._disk, log, segment, self._is_served)
            del self._waiting[segment]
        return None

    def done(self, rebuild: IndexRebuild) -> None:
        self._waiting.pop(rebuild.segment, None)
        if rebuild.error is not None:
            self._note(
                f"Could not rebuild the index files of {rebuild.segment.stem}{LOG_SUFFIX}: {rebuild.error}"
            )
