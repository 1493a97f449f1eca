"""The files themselves: which names match, what stat says, bytes at an offset. Knows nothing of lines, topics or identity.

Handles stay open while a file is read, so that one renamed out of the patterns or deleted is read to its end.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Iterable
from typing import Final

from kafkacompat.pipeline.collector.followed import Read, Saved
from kafkacompat.pipeline.collector.following import Key, Look
from kafkacompat.pipeline.collector.identity import is_compressed

MAX_FILES: Final = 1000
"""Files followed at once; more are refused, and counted."""

IDLE_CLOSE_S: Final = 60.0
"""A handle without new bytes for that long is closed; a file that still has its name is opened again when it grows."""

NAMELESS_CLOSE_S: Final = 5.0
"""The same for a file that no pattern finds any more: writers are given that long to notice the rotation."""


class _Handle:
    __slots__ = ("descriptor", "path", "size_bytes", "used_s")

    def __init__(self, descriptor: int, path: str, used_s: float) -> None:
        self.descriptor = descriptor
        self.path = path
        self.used_s = used_s
        self.size_bytes = -1


class Disk:
    """The files of some patterns. OSError of a read passes through; what cannot be looked at is in `troubles`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """patterns: file names, `*`, `?`, `[...]` and `**` allowed."""
        self._patterns = [os.path.abspath(pattern) for pattern in patterns]
        self._handles: dict[Key, _Handle] = {}
        self._named: dict[Key, str] = {}
        self.refused = 0
        """Matching files beyond MAX_FILES at the last scan."""
        self.troubles: dict[str, str] = {}
        """Path to what the system said about it, at the last scan."""

    def scan(self, now_s: float) -> tuple[list[Look], list[Key]]:
        """All files there are to follow, and those given up since: without a name, and nothing came for a while."""
        self.refused = 0
        self.troubles = {}
        self._named = {}
        looks: list[Look] = []
        for path in sorted(
            {path for pattern in self._patterns for path in glob.glob(pattern, recursive=True)}
        ):
            if is_compressed(path):
                continue
            try:
                status = os.stat(path)
            except OSError as error:
                self.troubles[path] = error.strerror or str(error)
                continue
            key = status.st_dev, status.st_ino
            if not stat.S_ISREG(status.st_mode) or key in self._named:
                continue
            if len(looks) == MAX_FILES:
                self.refused += 1
                continue
            self._named[key] = path
            looks.append(Look(path, *key, status.st_size, status.st_mtime_ns))
        gone = []
        for key, handle in list(self._handles.items()):
            status = os.fstat(handle.descriptor)
            if status.st_size != handle.size_bytes:
                handle.size_bytes, handle.used_s = status.st_size, now_s
            nameless = key not in self._named
            if now_s - handle.used_s > (NAMELESS_CLOSE_S if nameless else IDLE_CLOSE_S):
                self._close(key)
                if nameless:
                    gone.append(key)
            elif nameless:
                looks.append(Look(handle.path, *key, status.st_size, status.st_mtime_ns))
        return looks, gone

    def reader(self, look: Look, now_s: float) -> Read:
        """A way to read this file; it is opened at the first byte. FileNotFoundError when another took its name."""
        key = look.device, look.inode

        def read(offset: int, length: int) -> bytes:
            handle = self._handles.get(key) or self._open(key, look.path, now_s)
            return os.pread(handle.descriptor, length, offset)

        return read

    def find_renamed(self, files: Iterable[Saved], now_s: float) -> list[Key]:
        """Take up files of an earlier run that no pattern finds, if they are still in their directory; those not found."""
        lost = []
        for saved in files:
            key = saved.device, saved.inode
            if key in self._named or key in self._handles:
                continue
            try:
                self._open(key, self._sibling(saved), now_s)
            except OSError:
                lost.append(key)
        return lost

    def close(self) -> None:
        """Close all handles."""
        for key in list(self._handles):
            self._close(key)

    def _sibling(self, saved: Saved) -> str:
        with os.scandir(os.path.dirname(saved.path)) as entries:
            for entry in entries:
                if entry.inode() == saved.inode and not is_compressed(entry.path):
                    return entry.path
        raise FileNotFoundError(saved.path)

    def _open(self, key: Key, path: str, now_s: float) -> _Handle:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != key:
            os.close(descriptor)
            raise FileNotFoundError(path)
        handle = self._handles[key] = _Handle(descriptor, path, now_s)
        return handle

    def _close(self, key: Key) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handles.pop(key).descriptor)
