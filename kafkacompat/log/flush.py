"""Syncing the files of one log in a worker thread, because a sync blocks.

A flush syncs the files that it was given. The log notices later changes when it takes the result. After a failed sync
no further sync of the log is attempted: Linux reports a failed write-back to the first sync only and then treats the
lost bytes as written. A later successful sync would prove nothing.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from kafkacompat.ports import SyncFailed

if TYPE_CHECKING:
    from kafkacompat.meters import Histogram
    from kafkacompat.ports import Disk, File


class Syncs:
    """All syncs of one log, from any thread: one at a time, and none succeeds after a failed one."""

    __slots__ = ("_lock", "_mark", "failure", "times_ms")

    def __init__(self, mark: Callable[[], None], times_ms: Histogram | None = None) -> None:
        """`mark` leaves a note for the next start. It is called in the thread whose sync failed. `times_ms` takes the times
        of flushes."""
        self._lock = threading.Lock()
        self._mark = mark
        self.failure: SyncFailed | None = None
        """The error of the failed sync. From then on nothing that this process has written to the log counts as
        durable."""
        self.times_ms = times_ms

    def carry_out(self, sync: Callable[[], None]) -> None:
        """Run `sync`. Blocks. Raises SyncFailed. Any other OSError means that the sync could not begin."""
        with self._lock:
            if self.failure is not None:
                raise SyncFailed(
                    self.failure.errno, f"an earlier sync has failed: {self.failure}"
                ) from self.failure
            try:
                sync()
            except SyncFailed as failure:
                self.failure = failure
                self._mark()
                raise


class LogFlush:
    """The files of one log to sync, then the directories that contain their names. `run` is for a worker thread and
    changes nothing else."""

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_paths",
        "_syncs",
        "closed_to",
        "directory",
        "end_offset",
        "names",
        "newest_segment",
        "truncations",
    )

    def __init__(
        self,
        disk: Disk,
        syncs: Syncs,
        directory: str,
        files: list[File],
        paths: list[str],
        directories: list[str],
        end_offset: int,
        newest_segment: int,
        truncations: int,
        closed_to: int = 0,
        names: int = -1,
    ) -> None:
        """`directory` is the log's directory, `newest_segment` the base offset of the last segment to sync,
        `truncations` the number of truncations of the log so far, `closed_to` the base offset of the first segment that is
        not synced as a closed one, `names` the log's count of names that are synced then."""
        self._disk = disk
        self._syncs = syncs
        self.directory = directory
        self._files = files
        self._paths = paths
        self._directories = directories
        self.end_offset = end_offset
        self.newest_segment = newest_segment
        self.truncations = truncations
        self.closed_to = closed_to
        self.names = names

    def run(self) -> None:
        started_s = monotonic()
        self._syncs.carry_out(self._sync)
        if self._syncs.times_ms is not None:
            self._syncs.times_ms.note(1000 * (monotonic() - started_s))

    def sync_parent(self) -> None:
        """Sync the log directory that contains the log's directory."""
        self._syncs.carry_out(lambda: self._disk.sync_directory(posixpath.dirname(self.directory)))

    def _sync(self) -> None:
        for file in self._files:
            file.sync()
        for path in self._paths:
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                # Retention or truncation has deleted the file since the flush began.
                continue
            try:
                file.sync()
            finally:
                file.close()
        for directory in self._directories:
            try:
                self._disk.sync_directory(directory)
            except FileNotFoundError:
                # The topic was deleted since the flush began.
                continue


def new_names(directory: str, *, is_first: bool) -> list[str]:
    """The directories that contain the names of a log's new files: its own directory and, for the first files, the log
    directory above it."""
    return [directory, posixpath.dirname(directory)] if is_first else [directory]


def make_durable(flushes: Sequence[LogFlush]) -> list[OSError | None]:
    """Make new logs durable, and sync each log directory once for all of them. Returns the error of each log, or None.
    Blocks; for a worker thread."""
    failures = [_failure_of(flush.run) for flush in flushes]
    parents: dict[str, OSError | None] = {}
    for at, flush in enumerate(flushes):
        if failures[at] is None:
            parent = posixpath.dirname(flush.directory)
            if parent not in parents:
                parents[parent] = _failure_of(flush.sync_parent)
            failures[at] = parents[parent]
    return failures


def _failure_of(sync: Callable[[], None]) -> OSError | None:
    try:
        sync()
    except OSError as error:
        return error
    return None
