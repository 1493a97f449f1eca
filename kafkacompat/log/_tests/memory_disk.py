"""A Disk in memory for tests: the same bytes, no syscalls, faults on demand, and crashes that lose what was not synced."""

from __future__ import annotations

import errno
from collections import Counter

from kafkacompat.ports import Buffer


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, data: bytearray) -> None:
        self.path = path
        self._disk = disk
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def write_now(self, *buffers: Buffer) -> int:
        self._disk.may_fail(self.path)
        added = b"".join(bytes(buffer) for buffer in buffers)
        self.data += added
        return len(added)

    def try_read(self, position: int, length: int) -> bytes | None:
        return None if self._disk.cold else bytes(self.data[position : position + length])

    def read_cold(self, position: int, length: int) -> bytes:
        return bytes(self.data[position : position + length])

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        raise OSError(errno.EINVAL, "no sockets in memory")

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data += bytes(size - len(self.data))

    def sync(self) -> None:
        self._disk.synced[self.path] = bytes(self.data)

    def close(self) -> None:
        return None


class MemoryDisk:
    """Directories are prefixes that were made; files are bytearrays that renames carry along."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories: set[str] = set()
        self.synced: dict[str, bytes] = {}
        self.now_ms = 0
        self.ages: dict[str, int] = {}
        """When files were last changed whose time was set; the others now."""
        self.cold = False
        self.failing: str | None = None
        """Writes to paths that contain this fail."""

    def may_fail(self, path: str) -> None:
        if self.failing is not None and self.failing in path:
            raise OSError(errno.ENOSPC, "the disk is full", path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.may_fail(path)
            self.files[path] = bytearray()
        return MemoryFile(self, path, self.files[path])

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def list_directory(self, path: str) -> list[str]:
        prefix = path + "/"
        names = {
            name[len(prefix) :].split("/")[0]
            for name in (*self.files, *self.directories)
            if name.startswith(prefix)
        }
        return sorted(names)

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def read_bytes(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(self.files[path])

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.may_fail(path)
        self.files[path] = bytearray(data)
        if sync:
            self.synced[path] = data

    def rename(self, source: str, target: str) -> None:
        self.may_fail(target)
        if source in self.files:
            self.files[target] = self.files.pop(source)
            self.ages.pop(target, None)
            if source in self.ages:
                self.ages[target] = self.ages.pop(source)
            return
        if source not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.directories.remove(source)
        self.directories.add(target)
        for path in [path for path in self.files if path.startswith(source + "/")]:
            self.files[target + path[len(source) :]] = self.files.pop(path)

    def remove(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self.files[path]

    def remove_tree(self, path: str) -> None:
        self.directories.discard(path)
        for name in [name for name in self.files if name.startswith(path + "/")]:
            del self.files[name]

    def file_size(self, path: str) -> int:
        return len(self.read_bytes(path))

    def modified_ms(self, path: str) -> int:
        return self.ages.get(path, self.now_ms)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.ages[path] = modified_ms

    def sync_directory(self, path: str) -> None:
        """Names are durable at once."""

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def copy(self) -> MemoryDisk:
        """What another process would find now, had this one been killed: all that was written, synced or not."""
        other = MemoryDisk()
        other.files = {path: bytearray(data) for path, data in self.files.items()}
        other.directories = set(self.directories)
        return other


class CountingDisk(MemoryDisk):
    """Counts whole-file reads of transaction indexes, found or not."""

    def __init__(self) -> None:
        super().__init__()
        self.txn_index_reads: Counter[str] = Counter()

    def read_bytes(self, path: str) -> bytes:
        if path.endswith(".txnindex"):
            self.txn_index_reads[path] += 1
        return super().read_bytes(path)
