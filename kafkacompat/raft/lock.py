"""The `.lock` file of a log directory: one process at a time, Apache Kafka included.

Duty: hold the lock. POSIX record locks (lockf), because that is what Java's FileLock takes on Linux; flock would not meet it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence

from kafkacompat.raft.storage import StorageProblem

LOCK_FILE = ".lock"


class DirectoryLocks:
    """Locks on every directory, all or none. `release` at the very end of a node's life."""

    def __init__(self, directories: Sequence[str]) -> None:
        """StorageProblem naming the directory that another process holds, or that cannot be written."""
        self._descriptors: list[int] = []
        try:
            for directory in directories:
                self._descriptors.append(_lock(directory))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def _lock(directory: str) -> int:
    path = os.path.join(directory, LOCK_FILE)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageProblem(
            f"cannot lock log directory {directory} of log.dirs: {error.strerror}"
        ) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StorageProblem(
            f"failed to acquire the lock on file {LOCK_FILE} in {directory} (log.dirs): "
            "another process is using this directory"
        ) from error
    return descriptor
