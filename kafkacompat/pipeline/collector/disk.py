"""The files: names that match patterns, stat results, and bytes at an offset. Independent of lines, topics and
identities.

Each followed file is held open from its discovery until it is given up. So a file that is renamed out of the patterns
or deleted is still read to its end.
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
from kafkacompat.pipeline.collector.packed import is_compressed

MAX_FILES: Final = 1000
"""The maximum number of files followed by name. Further files are refused and counted.

Files that have lost their name come in addition, while some of their lines are not shipped. They are also counted.
Closing them would lose lines that only the open file still has.
"""

MAX_HANDLES: Final = 4 * MAX_FILES
"""The maximum number of open files, with and without a name."""

RENAMED_CLOSE_S: Final = 60.0
"""A file that no pattern matches any more is given up if it has not grown for this time. Writers keep their file open
until they notice the rotation."""

DELETED_CLOSE_S: Final = 5.0
"""The same for a deleted file, because the open handle keeps its disk space, and for all files beyond MAX_FILES."""


class _Handle:
    __slots__ = ("descriptor", "named", "path", "size_bytes", "used_s")

    def __init__(self, descriptor: int, path: str, used_s: float) -> None:
        self.descriptor = descriptor
        self.path = path
        self.named = True
        self.size_bytes = -1
        self.used_s = used_s
        """The time when it last grew, or lost its name."""


class Disk:
    """The files that match some patterns. The OSError of a failed read reaches the caller. `troubles` has files that
    cannot be examined."""

    def __init__(self, patterns: Iterable[str], max_handles: int = MAX_HANDLES) -> None:
        """patterns: file names with `*`, `?`, `[...]` and `**`. max_handles: the number of files that the system lets
        this process open."""
        self.max_handles = max_handles
        self._patterns = [os.path.abspath(pattern) for pattern in patterns]
        self._handles: dict[Key, _Handle] = {}
        self.refused = 0
        """Matching files beyond MAX_FILES or max_handles, at the last scan."""
        self.beyond = 0
        """Files held open beyond MAX_FILES at the last scan: without a name, with lines that are not shipped."""
        self.packed: set[str] = set()
        """Names of compressed rotated files that matched the patterns at the last scan."""
        self.troubles: dict[str, str] = {}
        """By path: the system's error at the last scan."""

    def scan(
        self, now_s: float, pending: Collection[Key] = (), expected: Collection[Key] = ()
    ) -> tuple[list[Look], list[Key]]:
        """Return all files to follow, and the files that were given up because they have no name and have not grown
        for a while.

        pending: files with lines that are not shipped. They are not given up. expected: files of an earlier run. These
        and the files that are already followed get a place among MAX_FILES before others.
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
                # This happens on a network file system. The file cannot be read unless the server returns.
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
                looks.append(Look(handle.path, *key, status.st_size, status.st_mtime_ns, named=False))
        self.beyond = max(len(self._handles) - MAX_FILES, 0)
        return looks, gone

    def reader(self, look: Look) -> Read:
        """Return a function that reads this file while it is followed."""
        descriptor = self._handles[look.device, look.inode].descriptor
        return lambda offset, length: os.pread(descriptor, length, offset)

    def find_renamed(self, files: Iterable[Saved], now_s: float) -> dict[Key, Look | None]:
        """Find files of an earlier run that no pattern matches, by inode in their folders. None for a file that does
        not exist.

        The inode may have been reused. The caller must compare the content and give up a different file. A file that
        may exist but cannot be examined now is missing from the result, and `troubles` has the reason.
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
        """Return compressed rotated files: those that matched the patterns, and those in the folders of the given names."""
        listed = set(self.packed)
        for folder in {folder for path in paths for folder in _folders(path)}:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                listed |= {entry.path for entry in entries if is_compressed(entry.path)}
        return listed

    def take_in(self, descriptor: int, path: str, now_s: float) -> Look:
        """Follow an open file without a name, as if it had lost the name `path`."""
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        self._handles[key] = _Handle(descriptor, path, now_s)
        return Look(path, *key, status.st_size, status.st_mtime_ns, named=False)

    def holds(self, key: Key) -> bool:
        """Return whether this file is open."""
        return key in self._handles

    def give_up(self, key: Key) -> None:
        """Close the file."""
        with contextlib.suppress(
            OSError
        ):  # on a network file system the descriptor is freed even if close fails
            os.close(self._handles.pop(key).descriptor)

    def close(self) -> None:
        """Close all handles."""
        for key in list(self._handles):
            self.give_up(key)

    def _living(self, key: Key) -> _Handle | None:
        """Return the open handle of a file that has a name. A stale handle is given up, so that the file is opened again."""
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
        """Return the matching regular files by device and inode, each with its first name."""
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
        return Look(path, *key, status.st_size, status.st_mtime_ns, named=False)

    def _open(self, key: Key, path: str, now_s: float) -> _Handle:
        """Open the file. Raises FileNotFoundError if another file has its name now."""
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
    """Return the folder of this name and, if the name is a link, the folder of its target."""
    return {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}


def _listing(folder: str, listings: dict[str, dict[int, str]]) -> dict[int, str]:
    """Return the folder's names by inode, without compressed files. Each folder is listed once."""
    if folder not in listings:
        try:
            with os.scandir(folder) as entries:
                listings[folder] = {
                    entry.inode(): entry.path for entry in entries if not is_compressed(entry.path)
                }
        except FileNotFoundError:
            listings[folder] = {}
    return listings[folder]
