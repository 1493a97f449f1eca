"""The files themselves: which names match, what stat says, bytes at an offset. Knows nothing of lines, topics or identity.

Each file that is followed is held open from the moment it is seen until it is given up, so that one renamed out of the
patterns or deleted is read to its end.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
from collections.abc import Collection, Iterable
from typing import Final

from kafkacompat.pipeline.collector.followed import Read, Saved
from kafkacompat.pipeline.collector.following import Key, Look
from kafkacompat.pipeline.collector.identity import is_compressed

MAX_FILES: Final = 1000
"""Files followed at once by name; more are refused, and counted. Files that lost their name come on top while lines of theirs
are not shipped, also counted: closing them would lose what only the handle can still read."""

MAX_HANDLES: Final = 4 * MAX_FILES
"""Of these and of those that lost their name together."""

RENAMED_CLOSE_S: Final = 60.0
"""A file that no pattern finds any more is given up when nothing came for that long: writers keep the file that they have
open until they notice the rotation."""

DELETED_CLOSE_S: Final = 5.0
"""The same for one that has no name at all, whose space on disk the handle holds, or when there are more than MAX_FILES."""


class _Handle:
    __slots__ = ("descriptor", "named", "path", "size_bytes", "used_s")

    def __init__(self, descriptor: int, path: str, used_s: float) -> None:
        self.descriptor = descriptor
        self.path = path
        self.named = True
        self.size_bytes = -1
        self.used_s = used_s
        """When it last grew, or lost its name."""


class Disk:
    """The files of some patterns. OSError of a read passes through; what cannot be looked at is in `troubles`."""

    def __init__(self, patterns: Iterable[str], max_handles: int = MAX_HANDLES) -> None:
        """patterns: file names, `*`, `?`, `[...]` and `**` allowed. max_handles: what the system has for them."""
        self.max_handles = max_handles
        self._patterns = [os.path.abspath(pattern) for pattern in patterns]
        self._handles: dict[Key, _Handle] = {}
        self.refused = 0
        """Matching files beyond MAX_FILES, or beyond max_handles, at the last scan."""
        self.beyond = 0
        """Files held open beyond MAX_FILES, at the last scan: their names are gone, their lines not shipped."""
        self.packed: set[str] = set()
        """Names of packed leftovers that the patterns found at the last scan."""
        self.troubles: dict[str, str] = {}
        """Path to what the system said about it, at the last scan."""

    def scan(
        self, now_s: float, pending: Collection[Key] = (), expected: Collection[Key] = ()
    ) -> tuple[list[Look], list[Key]]:
        """All files there are to follow, and those given up since: without a name, and nothing came for a while.

        pending: files with lines that are not shipped; they are not given up. expected: files of an earlier run; they and
        those followed already have a place among MAX_FILES before others.
        """
        self.refused = 0
        self.packed = set()
        self.troubles = {}
        found = self._matching()
        looks: list[Look] = []
        for key in sorted(found, key=lambda key: key not in self._handles and key not in expected):
            path, status = found[key]
            handle = self._living(key)
            if handle is None:
                if len(looks) >= MAX_FILES or len(self._handles) >= self.max_handles:
                    self.refused += 1
                    continue
                try:
                    handle = self._open(key, path, now_s)
                except OSError as error:
                    self.troubles[path] = error.strerror or str(error)
                    continue
            handle.path = path
            handle.named = True
            looks.append(Look(path, *key, status.st_size, status.st_mtime_ns))
        gone = []
        crowded = len(self._handles) > MAX_FILES
        for key in [key for key in self._handles if key not in found]:
            handle = self._handles[key]
            try:
                status = os.fstat(handle.descriptor)
            except OSError as error:
                # On a network file system: nothing of it can be read any more, unless its server comes back.
                self.troubles[handle.path] = error.strerror or str(error)
                if handle.named:
                    handle.named, handle.used_s = False, now_s
                elif now_s - handle.used_s > RENAMED_CLOSE_S:
                    self.give_up(key)
                    gone.append(key)
                continue
            if handle.named or status.st_size != handle.size_bytes:
                handle.named, handle.size_bytes, handle.used_s = False, status.st_size, now_s
            wait_s = RENAMED_CLOSE_S if status.st_nlink and not crowded else DELETED_CLOSE_S
            if now_s - handle.used_s > wait_s and key not in pending:
                self.give_up(key)
                gone.append(key)
            else:
                looks.append(Look(handle.path, *key, status.st_size, status.st_mtime_ns))
        self.beyond = max(len(self._handles) - MAX_FILES, 0)
        return looks, gone

    def reader(self, look: Look) -> Read:
        """A way to read this file, as long as it is followed."""
        descriptor = self._handles[look.device, look.inode].descriptor
        return lambda offset, length: os.pread(descriptor, length, offset)

    def find_renamed(self, files: Iterable[Saved], now_s: float) -> dict[Key, Look | None]:
        """Take up files of an earlier run that no pattern finds by their inodes in their folders; None for one not there.

        The inode may have been given out again: whoever calls compares the content, and gives up what is another file. A
        file that is perhaps there, but cannot be looked at now, is not in the answer; `troubles` says why.
        """
        listings: dict[str, dict[int, str]] = {}
        answer: dict[Key, Look | None] = {}
        for saved in files:
            key = saved.device, saved.inode
            try:
                names = [
                    listed[saved.inode]
                    for folder in _folders(saved.path)
                    if saved.inode in (listed := _listing(folder, listings))
                ]
                answer[key] = None
                for name in names:
                    answer[key] = self._take_up(key, name, saved.path, now_s)
                    if answer[key] is not None:
                        break
            except OSError as error:
                answer.pop(key, None)
                self.troubles[saved.path] = error.strerror or str(error)
        return answer

    def packed_beside(self, paths: Iterable[str]) -> set[str]:
        """Names of packed leftovers that the patterns found, or that lie where files of these names lay."""
        listed = set(self.packed)
        for folder in {folder for path in paths for folder in _folders(path)}:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                listed |= {entry.path for entry in entries if is_compressed(entry.path)}
        return listed

    def take_in(self, descriptor: int, path: str, now_s: float) -> Look:
        """Follow an open file that has no name, as if it had lost this one."""
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        self._handles[key] = _Handle(descriptor, path, now_s)
        return Look(path, *key, status.st_size, status.st_mtime_ns)

    def holds(self, key: Key) -> bool:
        """Whether this file is open."""
        return key in self._handles

    def give_up(self, key: Key) -> None:
        """Close it."""
        with contextlib.suppress(OSError):  # of a network file system, whose descriptor is free all the same
            os.close(self._handles.pop(key).descriptor)

    def close(self) -> None:
        """Close all handles."""
        for key in list(self._handles):
            self.give_up(key)

    def _living(self, key: Key) -> _Handle | None:
        """The open handle of a file that has a name; one that its file system knows no more is given up, to be opened anew."""
        handle = self._handles.get(key)
        if handle is None:
            return None
        try:
            os.fstat(handle.descriptor)
        except OSError:
            self.give_up(key)
            return None
        return handle

    def _matching(self) -> dict[Key, tuple[str, os.stat_result]]:
        """The regular files that have a name now, each under its first."""
        found: dict[Key, tuple[str, os.stat_result]] = {}
        for path in sorted(
            {path for pattern in self._patterns for path in glob.glob(pattern, recursive=True)}
        ):
            if is_compressed(path):
                self.packed.add(path)
                continue
            try:
                status = os.stat(path)
            except OSError as error:
                self.troubles[path] = error.strerror or str(error)
                continue
            if stat.S_ISREG(status.st_mode):
                found.setdefault((status.st_dev, status.st_ino), (path, status))
        return found

    def _take_up(self, key: Key, name: str, path: str, now_s: float) -> Look | None:
        try:
            handle = self._open(key, name, now_s)
        except FileNotFoundError:
            return None
        handle.path = path
        handle.named = False
        status = os.fstat(handle.descriptor)
        handle.size_bytes = status.st_size
        return Look(path, *key, status.st_size, status.st_mtime_ns)

    def _open(self, key: Key, path: str, now_s: float) -> _Handle:
        """FileNotFoundError when another took its name."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != key:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        except OSError:
            os.close(descriptor)
            raise
        handle = self._handles[key] = _Handle(descriptor, path, now_s)
        return handle


def _folders(path: str) -> set[str]:
    """Where a file of this name lay, and where it lay if the name is a link."""
    return {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}


def _listing(folder: str, listings: dict[str, dict[int, str]]) -> dict[int, str]:
    """The folder's names by inode, packed leftovers left out; listed once."""
    if folder not in listings:
        try:
            with os.scandir(folder) as entries:
                listings[folder] = {
                    entry.inode(): entry.path for entry in entries if not is_compressed(entry.path)
                }
        except FileNotFoundError:
            listings[folder] = {}
    return listings[folder]
