"""A disk in memory, as ports.Disk: directories are dictionaries, and files are anonymous files of the kernel.

So records are sent with sendfile, and a log is recovered, by the code that does so on a real disk. A file has no descriptor
before it is used: most files of a log stay empty, and many copies of a disk may be kept. A process may have few descriptors.
"""

from __future__ import annotations

import errno
import os
import posixpath
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkacompat.log.disk import RealFile
from kafkacompat.ports import ORDINARY_MODE, Buffer

SIZE_BYTES = 1 << 40
"""What the disk says that it holds."""
COPIED_AT_ONCE = 1 << 30
_creating = threading.Lock()


def anonymous_file() -> int:
    """The descriptor of an empty file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kafkacompat")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Inode:
    """The content of a file. It is freed when neither a name nor an open file refers to it any more."""

    __slots__ = ("_held", "is_closed", "modified_ms")

    def __init__(self, modified_ms: int, content: bytes = b"") -> None:
        self._held: bytes | int = content
        """The descriptor, once it is used, and the content before."""
        self.is_closed = False
        self.modified_ms = modified_ms

    def descriptor(self, path: str) -> int:
        """Raises OSError if the disk is closed."""
        held = self._held
        if isinstance(held, int):
            return held
        with _creating:
            if self.is_closed:
                raise OSError(errno.EBADF, "the disk is closed", path)
            if isinstance(self._held, bytes):
                fd, written, content = anonymous_file(), 0, memoryview(self._held)
                while written < len(content):
                    written += os.write(fd, content[written : written + COPIED_AT_ONCE])
                self._held = fd
            return self._held

    def size(self) -> int:
        held = self._held
        return len(held) if isinstance(held, bytes) else os.fstat(held).st_size

    def content(self, position: int = 0, length: int = -1) -> bytes:
        held = self._held
        end = self.size() if length < 0 else position + length
        if isinstance(held, bytes):
            return held[position:end]
        return os.pread(held, max(0, end - position), position)

    def copy(self) -> Inode:
        parts: list[bytes] = []
        left = self.size()
        while left:
            at = sum(map(len, parts))
            parts.append(self.content(at, min(left, COPIED_AT_ONCE)))
            left -= len(parts[-1])
        return Inode(self.modified_ms, b"".join(parts))

    def close(self) -> None:
        with _creating:
            self.is_closed = True
            held, self._held = self._held, b""
        if isinstance(held, int):
            os.close(held)

    def __del__(self) -> None:
        if isinstance(self._held, int):  # without the lock, which this thread may have
            os.close(self._held)


class MemoryFile(RealFile):
    """An open file. The descriptor is the inode's, for all who have the file open."""

    __slots__ = ("_inode", "_is_open", "_now_ms")

    def __init__(self, path: str, inode: Inode, now_ms: Callable[[], int]) -> None:
        self.path = path
        self._inode = inode
        self._now_ms = now_ms
        self._fd = -1
        self._size = inode.size()
        self._read_flags = 0
        self._is_open = True

    def _have_descriptor(self) -> None:
        """Asked each time, because the disk may have been closed meanwhile, and the number be another file's."""
        if not self._is_open:
            raise OSError(errno.EBADF, "closed", self.path)
        self._fd = self._inode.descriptor(self.path)

    def write_now(self, *buffers: Buffer) -> int:
        self._have_descriptor()
        self._inode.modified_ms = self._now_ms()
        return super().write_now(*buffers)

    def read_cold(self, position: int, length: int) -> bytes:
        self._have_descriptor()
        return super().read_cold(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._have_descriptor()
        return super().read_into(position, buffer)

    def try_read(self, position: int, length: int) -> bytes | None:
        if position >= self._size:
            return b""
        self._have_descriptor()
        return super().try_read(position, length)

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        self._have_descriptor()
        return super().send_to(socket_fileno, position, length)

    def fileno(self) -> int:
        self._have_descriptor()
        return self._fd

    def truncate(self, size: int) -> None:
        self._have_descriptor()
        self._inode.modified_ms = self._now_ms()
        super().truncate(size)

    def sync(self) -> None:
        """Memory has no disk behind it."""
        if not self._is_open:
            raise ValueError(f"{self.path} is closed")

    def forget_cached(self) -> None:
        """Do nothing, for the same reason."""

    def close(self) -> None:
        self._fd = -1
        self._is_open = False


Directory = dict[str, "Inode | Directory"]


class MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class MemoryDisk:
    """Directories of files in memory. Threads may use it at the same time."""

    is_shared = False

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` tells the time at which a file is modified."""
        self._now_ms = now_ms
        self._root: Directory = {}
        self._locked: set[str] = set()
        self._lock = threading.Lock()

    # Names.

    def _find(self, path: str) -> Inode | Directory:
        """Raises FileNotFoundError, NotADirectoryError."""
        found: Inode | Directory = self._root
        for name in path.split("/"):
            if not name:
                continue
            if isinstance(found, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
            if name not in found:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            found = found[name]
        return found

    def _directory(self, path: str) -> Directory:
        found = self._find(path)
        if isinstance(found, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
        return found

    def _file(self, path: str) -> Inode:
        found = self._find(path)
        if not isinstance(found, Inode):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        return found

    @contextmanager
    def _place(self, path: str) -> Iterator[tuple[Directory, str]]:
        """The directory that a path lies in, and the name there, while no other thread changes names."""
        above, name = posixpath.split(path)
        with self._lock:
            yield self._directory(above), name

    # Disk.

    def lock(self, path: str) -> MemoryLock:
        with self._lock:
            if path in self._locked:
                raise BlockingIOError(errno.EAGAIN, "another node has the lock", path)
            self._locked.add(path)
        return MemoryLock(self._locked, path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        with self._place(path) as (directory, name):
            if name not in directory and create:
                directory[name] = Inode(self._now_ms())
            return MemoryFile(path, self._file(path), self._now_ms)

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list_directory(self, path: str) -> list[str]:
        with self._lock:
            return sorted(self._directory(path))

    def make_directory(self, path: str, *, private: bool = False) -> None:
        with self._lock:
            found: Inode | Directory = self._root
            for name in path.split("/"):
                if not name:
                    continue
                if isinstance(found, Inode):
                    raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
                found = found.setdefault(name, {})
            if isinstance(found, Inode):
                raise FileExistsError(errno.EEXIST, "a file", path)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        return self._file(path).content(position, length)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        inode = Inode(self._now_ms(), bytes(data))
        with self._place(path) as (directory, name):
            if isinstance(directory.get(name), dict):
                raise IsADirectoryError(errno.EISDIR, "a directory", path)
            directory[name] = inode

    def rename(self, source: str, target: str) -> None:
        with self._place(source) as (directory, name):
            moved = self._find(source)
            above, new_name = posixpath.split(target)
            into = self._directory(above)
            there = into.get(new_name)
            if isinstance(moved, Inode):
                if isinstance(there, dict):
                    raise IsADirectoryError(errno.EISDIR, "a directory", target)
            elif isinstance(there, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "a file", target)
            elif there and there is not moved:
                raise OSError(errno.ENOTEMPTY, "not empty", target)
            del directory[name]
            into[new_name] = moved

    def remove(self, path: str) -> None:
        with self._place(path) as (directory, name):
            self._file(path)
            del directory[name]

    def remove_tree(self, path: str) -> None:
        with self._place(path) as (directory, name):
            self._directory(path)
            del directory[name]

    def file_size(self, path: str) -> int:
        found = self._find(path)
        return found.size() if isinstance(found, Inode) else 4096

    def modified_ms(self, path: str) -> int:
        found = self._find(path)
        return found.modified_ms if isinstance(found, Inode) else self._now_ms()

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        found = self._find(path)
        if isinstance(found, Inode):
            found.modified_ms = modified_ms

    def sync_directory(self, path: str) -> None:
        self._directory(path)

    def usage(self, path: str) -> tuple[int, int]:
        self._find(path)
        return SIZE_BYTES, SIZE_BYTES // 2

    # What tests do with it.

    def process_ended(self) -> None:
        """The node that used it is gone, and its locks with it."""
        self._locked.clear()

    def copy(self, now_ms: Callable[[], int] | None = None) -> MemoryDisk:
        """What a process finds that starts after this one was killed: everything that was written. `now_ms`: its clock, if it is
        another one."""
        other = MemoryDisk(now_ms or self._now_ms)
        with self._lock:
            other._root = _copied(self._root)
        return other

    def close(self) -> None:
        """Free the memory and the descriptors. Its files cannot be used any more."""
        with self._lock:
            for inode in _inodes(self._root):
                inode.close()
            self._root = {}


def _inodes(directory: Directory) -> Iterator[Inode]:
    for each in directory.values():
        if isinstance(each, Inode):
            yield each
        else:
            yield from _inodes(each)


def _copied(directory: Directory) -> Directory:
    return {
        name: each.copy() if isinstance(each, Inode) else _copied(each) for name, each in directory.items()
    }
