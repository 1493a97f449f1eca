"""The `.lock` file of a log directory: one process at a time, including Apache Kafka.

Either all directories are locked or none. An error names the directory that cannot be locked.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Sequence

from kafkacompat.ports import DirectoryLock, Disk
from kafkacompat.raft.storage import StorageProblem

LOCK_FILE = ".lock"


class DirectoryLocks:
    """Locks on every directory, all or none. Call `release` at the very end of a node's life."""

    def __init__(self, disk: Disk, directories: Sequence[str], dispensable: Container[str] = ()) -> None:
        """Raises StorageProblem with the directory that another process has locked, or that cannot be written and is
        not dispensable."""
        self._locks: list[DirectoryLock] = []
        self.failed: dict[str, OSError] = {}
        """Dispensable directories that cannot be written, for example on a file system mounted read-only."""
        try:
            for directory in directories:
                self._take(disk, directory, directory in dispensable)
        except BaseException:
            self.release()
            raise

    def _take(self, disk: Disk, directory: str, is_dispensable: bool) -> None:
        try:
            self._locks.append(disk.lock(posixpath.join(directory, LOCK_FILE)))
        except BlockingIOError as error:
            raise StorageProblem(
                f"failed to acquire the lock on file {LOCK_FILE} in {directory} (log.dirs): "
                "another process is using this directory"
            ) from error
        except OSError as error:
            if not is_dispensable:
                raise StorageProblem(
                    f"cannot lock log directory {directory} of log.dirs: {error.strerror}"
                ) from error
            self.failed[directory] = error

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()
