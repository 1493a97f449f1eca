"""A disk in a folder, as ports.Disk, for a Kafka in a process of its own: what a node has written outlives its process.

It does what a disk in memory does. Nothing is synced, because no test outlives its machine, and files are as old as the clock
of the test says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

from kafkacompat.log.disk import RealDisk, RealFile
from kafkacompat.ports import ORDINARY_MODE, Buffer
from kafkacompat.testing.memory_disk import MemoryLock


def _real_ms() -> int:
    return time.time_ns() // 1_000_000


class FolderFile(RealFile):
    """An open file."""

    __slots__ = ("_now_ms",)

    def __init__(self, path: str, real_path: str, now_ms: Callable[[], int], *, create: bool) -> None:
        is_new = create and not os.path.exists(real_path)
        super().__init__(real_path, create=create)
        self.path = path
        self._now_ms = now_ms
        if is_new:
            self._touch()

    def _touch(self) -> None:
        now_ns = self._now_ms() * 1_000_000
        os.utime(self._fd, ns=(now_ns, now_ns))

    def write_now(self, *buffers: Buffer) -> int:
        written = super().write_now(*buffers)
        self._touch()
        return written

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._touch()

    def sync(self) -> None:
        """Nothing outlives the machine."""
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")

    def forget_cached(self) -> None:
        """Do nothing, for the same reason."""


class FolderDisk:
    """Its root is a folder. Another process may use it later."""

    is_shared = False

    def __init__(self, folder: str, now_ms: Callable[[], int] = _real_ms) -> None:
        """`now_ms` tells the time at which a file is modified."""
        self.folder = folder
        self._now_ms = now_ms
        self._locked: set[str] = set()
        self._real = RealDisk()

    def __reduce__(self) -> tuple[Any, ...]:
        """A process sends it to another one by name."""
        return FolderDisk, (self.folder,)

    def _place(self, path: str) -> str:
        return f"{self.folder}/{path.lstrip('/')}"

    def lock(self, path: str) -> MemoryLock:
        if path in self._locked:
            raise BlockingIOError(f"{path} is locked")
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def open(self, path: str, *, create: bool = False) -> FolderFile:
        return FolderFile(path, self._place(path), self._now_ms, create=create)

    def exists(self, path: str) -> bool:
        return self._real.exists(self._place(path))

    def list_directory(self, path: str) -> list[str]:
        return self._real.list_directory(self._place(path))

    def make_directory(self, path: str, *, private: bool = False) -> None:
        self._real.make_directory(self._place(path), private=private)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        return self._real.read_bytes(self._place(path), position, length)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        self._real.write_atomic(self._place(path), data, sync=False, mode=mode)
        self.set_modified_ms(path, self._now_ms())

    def rename(self, source: str, target: str) -> None:
        self._real.rename(self._place(source), self._place(target))

    def remove(self, path: str) -> None:
        self._real.remove(self._place(path))

    def remove_tree(self, path: str) -> None:
        self._real.remove_tree(self._place(path))

    def file_size(self, path: str) -> int:
        return self._real.file_size(self._place(path))

    def modified_ms(self, path: str) -> int:
        return self._real.modified_ms(self._place(path))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._real.set_modified_ms(self._place(path), modified_ms)

    def sync_directory(self, path: str) -> None:
        """Nothing outlives the machine. But the directory must be there."""
        os.scandir(self._place(path)).close()

    def usage(self, path: str) -> tuple[int, int]:
        return self._real.usage(self._place(path))

    # What tests do with it.

    def process_ended(self) -> None:
        """The node that used it is gone, and its locks with it."""
        self._locked.clear()

    def copy(self, now_ms: Callable[[], int] | None = None, above: str | None = None) -> FolderDisk:
        """What a process finds that starts after this one was killed. `now_ms`: its clock, if it is another one. `above`: the
        folder of its folder, if it is another one."""
        folder = new_folder(above or os.path.dirname(self.folder))
        try:
            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        except BaseException:  # a part of it takes room on a full disk
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return FolderDisk(folder, now_ms or self._now_ms)

    def close(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def new_folder(above: str) -> str:
    return tempfile.mkdtemp(prefix="disk-", dir=above)
