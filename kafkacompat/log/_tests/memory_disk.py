"""A Disk in memory for tests: the same bytes, no system calls, faults on demand, and crashes that lose unsynced data.

It behaves like Linux after a failed write-back. The next sync reports the failure once. The data then counts as
written, so later syncs skip it, and a power loss shows that it is missing. A name is durable once its directory was
synced, also a name from the rename of a directory. The name of a new directory is durable at once.
"""

from __future__ import annotations

import errno
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kafkacompat.ports import Buffer, SyncFailed

Refuse = Callable[[str, str], OSError | None]
"""(operation, path) -> the error of the operation, or None."""


class Inode(bytearray):
    """A file's present contents, and how much of it is on the disk."""

    durable: bytes | None = None
    """None before the first sync."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges that count as written but are not on the disk."""

    def sync(self) -> None:
        content = bytearray(self)
        for start, end in self.lost:
            gone = range(*slice(start, end).indices(len(content)))
            content[start:end] = bytes(len(gone))
        self.durable = bytes(content)

    def lose(self) -> None:
        """A sync failed: data since the last sync is not on the disk, and is never written again."""
        durable = self.durable or b""
        kept = len(posixpath.commonprefix([durable, bytes(self)]))
        self.lost += ((kept, len(self)),)

    def write(self, position: int, added: bytes) -> None:
        self.extend(bytes(max(position - len(self), 0)))
        self[position : position + len(added)] = added

    def cut(self, size: int) -> None:
        self.lost = tuple((start, min(end, size)) for start, end in self.lost if start < size)
        del self[size:]
        self.extend(bytes(size - len(self)))


class Tree:
    """The names in each directory, counted, for disks with thousands of logs. A file makes all its parent directories
    known."""

    def __init__(self) -> None:
        self._names: dict[str, Counter[str]] = {}

    def add(self, path: str) -> None:
        while (parent := posixpath.dirname(path)) != path:
            self._names.setdefault(parent, Counter())[posixpath.basename(path)] += 1
            path = parent

    def remove(self, path: str) -> None:
        while (parent := posixpath.dirname(path)) != path:
            names, name = self._names[parent], posixpath.basename(path)
            names[name] -= 1
            if not names[name]:
                del names[name]
            path = parent

    def names_in(self, directory: str) -> list[str]:
        return list(self._names.get(directory, ()))

    def below(self, directory: str) -> Iterator[str]:
        """Every known path below a directory."""
        for name in self.names_in(directory):
            path = f"{directory}/{name}"
            yield path
            yield from self.below(path)


class Files(dict[str, bytearray]):
    """Files by path."""

    def __init__(self, files: Mapping[str, bytearray] | None = None) -> None:
        super().__init__()
        self.tree = Tree()
        for path, content in (files or {}).items():
            self[path] = content

    def __setitem__(self, path: str, content: bytearray) -> None:
        if path not in self:
            self.tree.add(path)
        super().__setitem__(path, content)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        self.tree.remove(path)

    def pop(self, path: str, *default: Any) -> Any:
        if path in self:
            self.tree.remove(path)
        return super().pop(path, *default)

    def directly_in(self, directory: str) -> list[str]:
        return [path for name in self.tree.names_in(directory) if (path := f"{directory}/{name}") in self]

    def below(self, directory: str) -> list[str]:
        return [path for path in self.tree.below(directory) if path in self]


class Directories(set[str]):
    def __init__(self, directories: Iterable[str] = ()) -> None:
        super().__init__()
        self.tree = Tree()
        for path in directories:
            self.add(path)

    def add(self, path: str) -> None:
        if path not in self:
            self.tree.add(path)
            super().add(path)

    def remove(self, path: str) -> None:
        super().remove(path)
        self.tree.remove(path)

    def from_on(self, directory: str) -> list[str]:
        """The file or directory, and everything below it."""
        return [path for path in (directory, *self.tree.below(directory)) if path in self]


class MemoryFile:
    """A file that remembers its end, like a real one. It cannot be used after it is closed."""

    def __init__(self, disk: MemoryDisk, path: str, data: Inode) -> None:
        self.path = path
        self._disk = disk
        self.data = data
        self._size = len(data)
        self._is_open = True

    def _meet(self, operation: str) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "closed", self.path)
        self._disk.meet(operation, self.path)

    def size(self) -> int:
        return self._size

    def write_now(self, *buffers: Buffer) -> int:
        self._meet("write")
        added = b"".join(bytes(buffer) for buffer in buffers)
        self.data.write(self._size, added)
        self._size += len(added)
        return len(added)

    def try_read(self, position: int, length: int) -> bytes | None:
        if position >= self._size:
            return b""
        self._meet("read")
        found = bytes(self.data[position : min(position + length, self._size)])
        is_there = len(found) == min(length, self._size - position)
        return found if is_there and not self._disk.cold else None

    def read_cold(self, position: int, length: int) -> bytes:
        self._meet("read")
        return bytes(self.data[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        found = self.read_cold(position, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        raise OSError(errno.EINVAL, "no sockets in memory")

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._meet("truncate")
        self.data.cut(size)
        self._size = size

    def sync(self) -> None:
        if not self._is_open:
            raise ValueError(f"{self.path} is closed")
        self._disk.sync_inode(self.path, self.data)

    def forget_cached(self) -> None:
        self.sync()
        self.data[:] = self.data.durable or b""
        self.data.lost = ()

    def close(self) -> None:
        self._is_open = False


class MemoryDisk:
    """Directories are prefixes that were created. Files are bytearrays that keep their identity in a rename."""

    def __init__(self) -> None:
        self.files = Files()
        self.directories = Directories()
        self.now_ms = 0
        self.ages: dict[str, int] = {}
        """Modification times that a test has set. Other files have the present time."""
        self.cold = False
        self.failing: str | None = None
        """Writes to paths that contain this text fail."""
        self.refuse: Refuse | None = None
        """Called before every operation."""
        self.lost_syncs: dict[str, OSError] = {}
        """Parts of paths: the next sync of such a file fails with the error, and the one after it succeeds."""
        self._named = Files()
        """Files whose names are durable."""
        self._moved: list[tuple[str, str]] = []
        """Renames of directories that are not durable, as (old name, new name)."""

    # Faults.

    def meet(self, operation: str, path: str) -> None:
        if self.refuse is not None and (error := self.refuse(operation, path)) is not None:
            if operation.startswith("sync"):
                error = SyncFailed(*error.args)
            raise error
        writes = operation in ("write", "create", "write_atomic", "rename")
        if writes and self.failing is not None and self.failing in path:
            raise OSError(errno.ENOSPC, "the disk is full", path)

    def sync_inode(self, path: str, inode: Inode) -> None:
        part = next((part for part in self.lost_syncs if part in path), None)
        try:
            if part is not None:
                raise SyncFailed(*self.lost_syncs.pop(part).args)
            self.meet("sync", path)
        except SyncFailed:
            inode.lose()
            raise
        inode.sync()

    @property
    def synced(self) -> dict[str, bytes]:
        """The contents on the disk of the files that were synced."""
        return {
            path: inode.durable
            for path, inode in self.files.items()
            if isinstance(inode, Inode) and inode.durable is not None
        }

    def lose_power(self, *, kept: tuple[str, ...] = ()) -> MemoryDisk:
        """The disk after a power loss: unsynced data is gone, except for new names of directories directly in `kept`."""
        other = MemoryDisk()
        other.directories = Directories(self.directories)
        for path, inode in self._named.items():
            other.files[path] = left = Inode((inode.durable or b"") if isinstance(inode, Inode) else inode)
            left.sync()
        other._named = Files(other.files)
        for source, target in reversed(self._moved):
            if posixpath.dirname(source) not in kept and target in other.directories:
                # A directory that has the old name by now was created later and is not on the disk.
                if source in other.directories:
                    other.remove_tree(source)
                other.rename(target, source)
        other._moved.clear()
        return other

    # Disk.

    def _inode(self, path: str) -> Inode:
        """Bytes that a test has put there directly count as synced."""
        inode = self.files.get(path)
        if inode is None:
            if path in self.directories:
                raise IsADirectoryError(errno.EISDIR, "a directory", path)
            if self._lies_in_a_file(path):
                raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if not isinstance(inode, Inode):
            inode = self.files[path] = self._named[path] = Inode(inode)
            inode.sync()
        return inode

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path in self.files or path in self.directories or not create:
            self.meet("open", path)
            return MemoryFile(self, path, self._inode(path))
        self.meet("create", path)
        self._need_directory(posixpath.dirname(path))
        self.files[path] = Inode()
        return MemoryFile(self, path, self._inode(path))

    def _need_directory(self, path: str) -> None:
        """A test may put files into a directory that was not created."""
        if path in self.files or self._lies_in_a_file(path):
            raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
        if path not in self.directories and not self.files.tree.names_in(path):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def _lies_in_a_file(self, path: str) -> bool:
        while (above := posixpath.dirname(path)) != path:
            if above in self.files:
                return True
            path = above
        return False

    def exists(self, path: str) -> bool:
        self.meet("exists", path)
        return path in self.files or path in self.directories

    def list_directory(self, path: str) -> list[str]:
        self.meet("list_directory", path)
        self._need_directory(path)
        return sorted({*self.files.tree.names_in(path), *self.directories.tree.names_in(path)})

    def make_directory(self, path: str, *, private: bool = False) -> None:
        self.meet("make_directory", path)
        if path in self.files:
            raise FileExistsError(errno.EEXIST, "a file", path)
        above = posixpath.dirname(path)
        while above != posixpath.dirname(above) and above not in self.directories:
            if above in self.files:
                raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
            self.directories.add(above)
            above = posixpath.dirname(above)
        self.directories.add(path)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        self.meet("read_bytes", path)
        data = bytes(self._inode(path))[position:]
        return data if length < 0 else data[:length]

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
        self.meet("write_atomic", path)
        self._need_directory(posixpath.dirname(path))
        inode = Inode(data)
        if sync:
            self.sync_inode(path + ".tmp", inode)
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        self.files[path] = inode
        if sync:
            self._named[path] = inode

    def rename(self, source: str, target: str) -> None:
        self.meet("rename", target)
        if source in self.files:
            if target in self.directories:
                raise IsADirectoryError(errno.EISDIR, "is a directory", target)
            self._need_directory(posixpath.dirname(target))
            self.files[target] = self.files.pop(source)
            self.ages.pop(target, None)
            if source in self.ages:
                self.ages[target] = self.ages.pop(source)
            return
        if source not in self.directories:
            self._need_directory(posixpath.dirname(source))
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if source == target:
            return
        if target in self.files:
            raise NotADirectoryError(errno.ENOTDIR, "a file", target)
        if self.directories.tree.names_in(target) or self.files.tree.names_in(target):
            raise OSError(errno.ENOTEMPTY, "not empty", target)
        for path in self.directories.from_on(source):
            self.directories.remove(path)
            self.directories.add(target + path[len(source) :])
        for files in (self.files, self._named):
            for path in files.below(source):
                files[target + path[len(source) :]] = files.pop(path)
        self._moved.append((source, target))

    def remove(self, path: str) -> None:
        self.meet("remove", path)
        self._inode(path)
        del self.files[path]

    def remove_tree(self, path: str) -> None:
        self.meet("remove_tree", path)
        self._need_directory(path)
        for each in self.directories.from_on(path):
            self.directories.remove(each)
        for files in (self.files, self._named):
            for name in files.below(path):
                del files[name]

    def file_size(self, path: str) -> int:
        self.meet("file_size", path)
        return 4096 if path in self.directories else len(self._inode(path))

    def modified_ms(self, path: str) -> int:
        self.meet("modified_ms", path)
        if path not in self.directories:
            self._inode(path)
        return self.ages.get(path, self.now_ms)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.meet("set_modified_ms", path)
        if path not in self.directories:
            self._inode(path)
        self.ages[path] = modified_ms

    def sync_directory(self, path: str) -> None:
        self.meet("sync_directory", path)
        self._need_directory(path)
        self._moved = [each for each in self._moved if posixpath.dirname(each[0]) != path]
        for name in self._named.directly_in(path):
            del self._named[name]
        for name in self.files.directly_in(path):
            self._named[name] = self.files[name]

    def usage(self, path: str) -> tuple[int, int]:
        self.meet("usage", path)
        return 1 << 40, 1 << 39

    def copy(self) -> MemoryDisk:
        """The disk that another process would find if this one were killed now: everything written, synced or not."""
        other = MemoryDisk()
        for path, data in self.files.items():
            other.files[path] = inode = Inode(data)
            if isinstance(data, Inode):
                inode.durable, inode.lost = data.durable, data.lost
            else:
                inode.sync()
        other._named = Files(
            {path: other.files[path] for path, inode in self._named.items() if self.files.get(path) is inode}
        )
        other.directories = Directories(self.directories)
        other._moved = list(self._moved)
        return other


class CountingDisk(MemoryDisk):
    """Counts the files that are opened or read whole, and the bytes read."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self.bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        self.opened[path] += 1
        return CountingFile(self, file.path, file.data)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        data = super().read_bytes(path, position, length)
        self.opened[path] += 1
        self.bytes_read += len(data)
        return data

    def file_size(self, path: str) -> int:
        return len(super().read_bytes(path))


class CountingFile(MemoryFile):
    _disk: CountingDisk

    def try_read(self, position: int, length: int) -> bytes | None:
        data = super().try_read(position, length)
        self._disk.bytes_read += len(data or b"")
        return data

    def read_cold(self, position: int, length: int) -> bytes:
        data = super().read_cold(position, length)
        self._disk.bytes_read += len(data)
        return data
