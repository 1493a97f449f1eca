"""The simulated disk of one machine, as ports.Disk: files in memory, of which a power loss takes what was not synced.

A process that is killed leaves everything, as the page cache does. A power loss keeps of each file what was synced and any prefix
of what was appended since; a truncation that was not synced may come undone; names are durable as soon as they are given.
"""

from __future__ import annotations

import errno

from kafkacompat.ports import Buffer
from kafkacompat.sim.chance import Chance


class Content:
    """One file's bytes, which a rename carries along."""

    __slots__ = ("data", "synced")

    def __init__(self, data: bytearray, synced: bytes) -> None:
        self.data = data
        self.synced = synced

    def after_power_loss(self, chance: Chance) -> bytes:
        data, synced = self.data, self.synced
        if data.startswith(synced):
            unsynced = len(data) - len(synced)
            return bytes(data[: len(synced) + (chance.between(0, unsynced) if unsynced else 0)])
        # It was cut back, perhaps written again, since.
        return synced if chance.happens(0.5) else bytes(data)


class SimulatedFile:
    def __init__(self, path: str, content: Content) -> None:
        self.path = path
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
        data = self._content.data
        del data[size:]
        data += bytes(size - len(data))

    def sync(self) -> None:
        self._content.synced = bytes(self._content.data)

    def forget_cached(self) -> None:
        self.sync()

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
        return SimulatedFile(path, content)

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
        self._files[path] = Content(bytearray(data), bytes(data) if sync else b"")

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
