"""The simulated disk of one machine, as ports.Disk: files in memory, of which a power loss takes what was not synced.

A process that is killed leaves everything, as the page cache does. A power loss keeps of each file what was synced and any prefix
of what was appended since; a truncation that was not synced may come undone; names are durable as soon as they are given.
A sync may fail, and does so as on Linux: it is told once, what it was to write is not on the disk and counts as written, so that
later syncs succeed and pass it by.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from posixpath import commonprefix

from kafkacompat.ports import Buffer, SyncFailed
from kafkacompat.sim.chance import Chance


class Content:
    """One file's bytes, which a rename carries along."""

    __slots__ = ("data", "lost", "synced")

    def __init__(self, data: bytearray, synced: bytes) -> None:
        self.data = data
        self.synced = synced
        self.lost: tuple[tuple[int, int], ...] = ()
        """Ranges that count as written and are not on the disk."""

    def written(self) -> bytes:
        """What the disk has once everything counts as written."""
        if not self.lost:
            return bytes(self.data)
        result = bytearray(self.data)
        for start, end in self.lost:
            result[start:end] = bytes(end - start)
        return bytes(result)

    def lose(self) -> None:
        """A sync failed."""
        kept = len(commonprefix([self.synced, self.written()]))
        self.lost += ((kept, len(self.data)),)

    def truncate(self, size: int) -> None:
        self.lost = tuple((start, min(end, size)) for start, end in self.lost if start < size)
        del self.data[size:]
        self.data += bytes(size - len(self.data))

    def after_power_loss(self, chance: Chance) -> bytes:
        data, synced = self.written(), self.synced
        if data.startswith(synced):
            unsynced = len(data) - len(synced)
            return bytes(data[: len(synced) + (chance.between(0, unsynced) if unsynced else 0)])
        # It was cut back, perhaps written again, since.
        return synced if chance.happens(0.5) else bytes(data)


class SimulatedFile:
    def __init__(self, disk: FileDisk, path: str, content: Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content

    def size(self) -> int:
        return len(self._content.data)

    def write_now(self, *buffers: Buffer) -> int:
        data = self._content.data
        before = len(data)
        for buffer in buffers:
            data += buffer
        return len(data) - before

    def try_read(self, position: int, length: int) -> bytes | None:
        return self.read_cold(position, length)

    def read_cold(self, position: int, length: int) -> bytes:
        return bytes(self._content.data[position : position + length])

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        raise OSError(errno.EINVAL, "no sockets in a simulation")

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def sync(self) -> None:
        content = self._content
        self._disk.sync_content(self.path, content)
        if content.lost:
            self._disk.trusted.append(self.path)

    def forget_cached(self) -> None:
        content = self._content
        self._disk.sync_content(self.path, content)
        content.data[:] = content.synced
        content.lost = ()

    def close(self) -> None:
        """Nothing is held."""


class Lock:
    """Of a living process's; the end of the process releases it too."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class FileDisk:
    """Directories are prefixes that were made."""

    is_shared = False

    def __init__(self) -> None:
        self._locks: set[str] = set()
        self._files: dict[str, Content] = {}
        self._directories: set[str] = set()
        self.now_ms = 0
        self.fails_sync: Callable[[str], bool] = lambda path: False
        """Asked of each sync that has something to write whether it fails."""
        self.failed_syncs = 0
        self.trusted: list[str] = []
        """Files that were synced once more after a sync of theirs had failed: a process that does so takes them for durable."""

    def sync_content(self, path: str, content: Content) -> None:
        written = content.written()
        if written != content.synced and self.fails_sync(path):
            self.failed_syncs += 1
            content.lose()
            raise SyncFailed(errno.EIO, "the sync failed", path)
        content.synced = written

    def lose_power(self, chance: Chance) -> int:
        """Returns the bytes lost. Files that are open in the life that ended stay apart from those of the next."""
        lost = 0
        # In the order of their making, not by name: what is set aside has a name that is drawn elsewhere.
        for path, content in list(self._files.items()):
            kept = content.after_power_loss(chance)
            lost += max(0, len(content.data) - len(kept))
            self._files[path] = Content(bytearray(kept), kept)
        return lost

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "another process has the lock", path)
        self.open(path, create=True)
        self._locks.add(path)
        return Lock(self._locks, path)

    def process_ended(self) -> None:
        """Whatever it held is free. A lock that it left is not taken away from the next process."""
        self._locks = set()

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        content = self._files.get(path)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            content = self._files[path] = Content(bytearray(), b"")
        return SimulatedFile(self, path, content)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def list_directory(self, path: str) -> list[str]:
        prefix = path + "/"
        start = len(prefix)
        names = {name[start:].split("/", 1)[0] for name in self._files if name.startswith(prefix)}
        names.update(name[start:].split("/", 1)[0] for name in self._directories if name.startswith(prefix))
        return sorted(names)

    def make_directory(self, path: str) -> None:
        self._directories.add(path)

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._content(path).data)

    def _content(self, path: str) -> Content:
        content = self._files.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        content = Content(bytearray(data), b"")
        if sync:
            self.sync_content(path, content)
        self._files[path] = content

    def rename(self, source: str, target: str) -> None:
        if source in self._files:
            self._files[target] = self._files.pop(source)
            return
        if source not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._directories.remove(source)
        self._directories.add(target)
        for path in [path for path in self._files if path.startswith(source + "/")]:
            self._files[target + path[len(source) :]] = self._files.pop(path)

    def remove(self, path: str) -> None:
        self._content(path)
        del self._files[path]

    def remove_tree(self, path: str) -> None:
        self._directories.discard(path)
        for name in [name for name in self._files if name.startswith(path + "/")]:
            del self._files[name]

    def file_size(self, path: str) -> int:
        return len(self._content(path).data)

    def modified_ms(self, path: str) -> int:
        return self.now_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Everything was last changed now."""

    def sync_directory(self, path: str) -> None:
        """Names are durable at once."""

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39
