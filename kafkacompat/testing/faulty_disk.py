"""A disk that is full, slow, or fails to sync, as the faults of a test say: a Disk around another one.

A fault of a disk may name a node, a topic and a partition. It counts the operations that meet it. While there is no fault,
an operation costs one look.
"""

from __future__ import annotations

import errno
import posixpath
import re
from typing import TYPE_CHECKING

from kafkacompat.exchanges.levels import PARTITION, TOPIC, Names
from kafkacompat.ports import ORDINARY_MODE, Buffer, DirectoryLock, Disk, File, SyncFailed
from kafkacompat.ports.files import SYNCS, WRITES
from kafkacompat.testing.faults import FailedSync, FullDisk, SlowDisk
from kafkacompat.testing.workers import hold_up, may_be_held_up

if TYPE_CHECKING:
    from kafkacompat.testing.faults import Faults

_LOG_DIRECTORY = re.compile(r"(.+)-(\d{1,10})(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")
SLOW = SYNCS | {"read"}
"""What a slow disk holds up: syncs, and reads of logs, as far as they are jobs of workers. So nobody else waits for them. What a
node's loop does itself is neither held up nor counted."""


def names_of_path(path: str) -> Names:
    """The topic and the partition to which a file belongs. Nothing if it is of no log."""
    for part in reversed(path.split("/")):  # a log directory, further up, may be called kafka-1
        found = _LOG_DIRECTORY.fullmatch(part)
        if found is not None:
            return {TOPIC: found[1], PARTITION: int(found[2])}
    return {}


class _Meeting:
    """What faults do to the operations of one node's disk."""

    def __init__(self, faults: Faults, node: int) -> None:
        self.faults = faults
        self.node = node

    def meet(self, operation: str, path: str) -> None:
        """Wait, or raise OSError."""
        if not self.faults.active:
            return
        names = names_of_path(path)
        if operation in WRITES and self.faults.meets_disk(FullDisk, self.node, names):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        if operation in SYNCS and self.faults.meets_disk(FailedSync, self.node, names):
            raise SyncFailed(errno.EIO, "Input/output error", path)
        if operation in SLOW and may_be_held_up():
            slow = self.faults.meets_disk(SlowDisk, self.node, names)
            if isinstance(slow, SlowDisk):
                hold_up(slow.ms)

    def is_slow(self, path: str) -> bool:
        """Whether a read may not be done in the loop."""
        return bool(self.faults.active) and self.faults.may_meet_disk(
            SlowDisk, self.node, names_of_path(path)
        )


class FaultyFile:
    """ports.File."""

    __slots__ = ("_inner", "_meeting", "path")

    def __init__(self, inner: File, path: str, meeting: _Meeting) -> None:
        self._inner = inner
        self._meeting = meeting
        self.path = path

    def size(self) -> int:
        return self._inner.size()

    def write_now(self, *buffers: Buffer) -> int:
        self._meeting.meet("write", self.path)
        return self._inner.write_now(*buffers)

    def try_read(self, position: int, length: int) -> bytes | None:
        return None if self._meeting.is_slow(self.path) else self._inner.try_read(position, length)

    def read_cold(self, position: int, length: int) -> bytes:
        self._meeting.meet("read", self.path)
        return self._inner.read_cold(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._meeting.meet("read", self.path)
        return self._inner.read_into(position, buffer)

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        return self._inner.send_to(socket_fileno, position, length)

    def fileno(self) -> int:
        return self._inner.fileno()

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def sync(self) -> None:
        self._meeting.meet("sync", self.path)
        self._inner.sync()

    def forget_cached(self) -> None:
        self._meeting.meet("sync", self.path)
        self._inner.forget_cached()

    def close(self) -> None:
        self._inner.close()


class FaultyDisk:
    """ports.Disk."""

    def __init__(self, inner: Disk, faults: Faults, node: int) -> None:
        self._inner = inner
        self._meeting = _Meeting(faults, node)
        self.is_shared = inner.is_shared

    def lock(self, path: str) -> DirectoryLock:
        return self._inner.lock(path)

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self._meeting.meet("create", path)
        return FaultyFile(self._inner.open(path, create=create), path, self._meeting)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def list_directory(self, path: str) -> list[str]:
        return self._inner.list_directory(path)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        self._meeting.meet("make_directory", path)
        self._inner.make_directory(path, private=private)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        return self._inner.read_bytes(path, position, length)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        self._meeting.meet("write_atomic", path)
        if sync:
            self._meeting.meet("sync", path)
        self._inner.write_atomic(path, data, sync=sync, mode=mode)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self._inner.remove_tree(path)

    def file_size(self, path: str) -> int:
        return self._inner.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._inner.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._inner.set_modified_ms(path, modified_ms)

    def sync_directory(self, path: str) -> None:
        self._meeting.meet("sync_directory", posixpath.join(path, ""))
        self._inner.sync_directory(path)

    def usage(self, path: str) -> tuple[int, int]:
        return self._inner.usage(path)
