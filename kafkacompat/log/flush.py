"""Syncing one log's files, apart from the log itself, because it blocks and belongs in a worker thread.

Duty: fsync what it was given, and never after a sync that failed. Must not know: what changed meanwhile; the log compares when it
takes the result. Linux tells of a failed write-back only the first sync that asks, and holds what was lost for written: a later
one that succeeds says nothing of it.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ports import SyncFailed

if TYPE_CHECKING:
    from kafkacompat.ports import Disk, File


class Syncs:
    """All syncs of one log: one at a time, whichever threads they are in, and none that succeeds after one that failed."""

    __slots__ = ("_lock", "_mark", "failure")

    def __init__(self, mark: Callable[[], None]) -> None:
        """`mark` leaves word for the next start; in the thread in which a sync has failed."""
        self._lock = threading.Lock()
        self._mark = mark
        self.failure: SyncFailed | None = None
        """Of the one that failed: nothing that this process has of the log counts as durable any more."""

    def carry_out(self, sync: Callable[[], None]) -> None:
        """Blocks. SyncFailed; any other OSError says that the sync could not begin."""
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
    """The files to sync for one log, then the directories in which they have got their names; `run` is for a worker thread and
    touches nothing else."""

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_paths",
        "_syncs",
        "directory",
        "end_offset",
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
    ) -> None:
        """`directory`: the log's; `newest_segment`: the base of the last one covered; `truncations` of the log so far."""
        self._disk = disk
        self._syncs = syncs
        self.directory = directory
        self._files = files
        self._paths = paths
        self._directories = directories
        self.end_offset = end_offset
        self.newest_segment = newest_segment
        self.truncations = truncations

    def run(self) -> None:
        self._syncs.carry_out(self._sync)

    def sync_parent(self) -> None:
        """The log directory above."""
        self._syncs.carry_out(lambda: self._disk.sync_directory(posixpath.dirname(self.directory)))

    def _sync(self) -> None:
        for file in self._files:
            file.sync()
        for path in self._paths:
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                # Dropped by retention or truncation since the flush began.
                continue
            try:
                file.sync()
            finally:
                file.close()
        for directory in self._directories:
            try:
                self._disk.sync_directory(directory)
            except FileNotFoundError:
                # Its topic was deleted since the flush began.
                continue


def new_names(directory: str, *, is_first: bool) -> list[str]:
    """What holds the names of a log's new files: its directory, and with the first of them the log directory above."""
    return [directory, posixpath.dirname(directory)] if is_first else [directory]


def anchor(flushes: Sequence[LogFlush]) -> list[OSError | None]:
    """Make new logs durable, each log directory once for all of them; what each failed with. Blocks; for a worker thread."""
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
