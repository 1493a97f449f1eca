"""The simulated disk of one machine, as ports.Disk: files and names in memory. A power loss removes what was not synced.

After a kill everything stays, as in the page cache. A power loss keeps of each file the synced part and a random
prefix of later appends, sometimes with zeros after it. A truncation that was not synced may be undone. A sync may fail as
on Linux: the error is reported once, the data are not on the disk but count as written, so later syncs succeed without
writing them.

A name is durable once its directory was synced. A power loss keeps a random prefix of the later changes to the
directory: new names may be missing, removed names may be back, and a rename is undone completely. The files themselves
keep their content.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator
from posixpath import commonprefix
from typing import Generic, TypeVar, Union

from kafkacompat.ports import Buffer, SyncFailed
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.processes import ProcessEnded

F = TypeVar("F")
Entry = Union[F, "Directory[F]"]


class Directory(Generic[F]):
    """Entries by name, and the changes since the last sync, each with the data to undo it."""

    __slots__ = ("_unsynced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry[F]] = {}
        self._unsynced: list[tuple[tuple[str, Entry[F] | None], ...]] = []
        """For each change: the affected names and their previous entries."""

    def put(self, name: str, entry: Entry[F] | None) -> None:
        """Set an entry. None removes the name."""
        self._unsynced.append(((name, self.entries.get(name)),))
        self._set(name, entry)

    def rename(self, source: str, target: str) -> None:
        entries = self.entries
        self._unsynced.append(((source, entries[source]), (target, entries.get(target))))
        self._set(target, entries[source])
        self._set(source, None)

    def sync(self) -> None:
        self._unsynced.clear()

    def lose_power(self, chance: Chance) -> int:
        """Undo changes, also in subdirectories. Return their number."""
        steps = self._unsynced
        kept = chance.between(0, len(steps)) if steps else 0
        undone = len(steps) - kept
        for step in reversed(steps[kept:]):
            for name, before in step:
                self._set(name, before)
        steps.clear()
        for each in self.entries.values():
            if isinstance(each, Directory):
                undone += each.lose_power(chance)
        return undone

    def files(self) -> Iterator[F]:
        """Yield the files, also in subdirectories, in the order in which they got their names."""
        for each in self.entries.values():
            if isinstance(each, Directory):
                yield from each.files()
            else:
                yield each

    def _set(self, name: str, entry: Entry[F] | None) -> None:
        if entry is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = entry


class Names(Generic[F]):
    """All names of a disk, by absolute path. Raises FileNotFoundError, NotADirectoryError and IsADirectoryError like
    the system."""

    def __init__(self) -> None:
        self.root: Directory[F] = Directory()

    def find(self, path: str) -> Entry[F] | None:
        entry: Entry[F] | None = self.root
        for name in filter(None, path.split("/")):
            if not isinstance(entry, Directory):
                return None
            entry = entry.entries.get(name)
        return entry

    def entry(self, path: str) -> Entry[F]:
        entry = self.find(path)
        if entry is None:
            raise self._absent(path)
        return entry

    def directory(self, path: str) -> Directory[F]:
        entry = self.entry(path)
        if not isinstance(entry, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "a file", path)
        return entry

    def file(self, path: str) -> F:
        entry = self.entry(path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        return entry

    def _absent(self, path: str) -> OSError:
        above = path.rpartition("/")[0]
        while above and (entry := self.find(above)) is None:
            above = above.rpartition("/")[0]
        if above and not isinstance(entry, Directory):
            return NotADirectoryError(errno.ENOTDIR, "a file lies above", path)
        return FileNotFoundError(errno.ENOENT, "nothing of that name", path)

    def put(self, path: str, file: F) -> None:
        """Give a file a name. The file may have other names."""
        parent, _, name = path.rpartition("/")
        directory = self.directory(parent)
        if isinstance(directory.entries.get(name), Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        directory.put(name, file)

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents. An existing one stays."""
        above, _, name = path.rpartition("/")
        if above:
            if self.find(above) is not None:
                self.directory(above)
            else:
                self.make_directory(above)
        parent = self.directory(above) if above else self.root
        entry = parent.entries.get(name)
        if entry is None:
            parent.put(name, Directory())
        elif not isinstance(entry, Directory):
            raise FileExistsError(errno.EEXIST, "a file", path)

    def rename(self, source: str, target: str) -> None:
        """Rename within one directory, which is all that the callers need."""
        parent, _, name = source.rpartition("/")
        other, _, new_name = target.rpartition("/")
        if parent != other:
            raise ValueError(f"{source} would go to another directory: {target}")
        directory = self.directory(parent)
        if name not in directory.entries:
            raise self._absent(source)
        if name == new_name:
            return
        taken = directory.entries.get(new_name)
        if isinstance(directory.entries[name], Directory):
            if taken is not None and not isinstance(taken, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "a file", target)
        elif isinstance(taken, Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", target)
        if isinstance(taken, Directory) and taken.entries:
            raise OSError(errno.ENOTEMPTY, "not empty", target)
        directory.rename(name, new_name)

    def remove(self, path: str) -> None:
        self.file(path)
        parent, _, name = path.rpartition("/")
        self.directory(parent).put(name, None)

    def remove_tree(self, path: str) -> None:
        """Remove a tree, one name after another."""
        directory = self.directory(path)
        for name in list(directory.entries):
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                directory.put(name, None)
        parent, _, name = path.rpartition("/")
        self.directory(parent).put(name, None)


SHARE_OF_ZEROS = 0.3
"""Share of the files whose end was not synced."""


class DiedWriting(ProcessEnded):
    """The process died in the middle of a write. This share of it is in the file."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share


class FileContent:
    """One file's bytes, which keep their identity in a rename."""

    __slots__ = ("data", "lost", "synced")

    def __init__(self, data: bytearray, synced: bytes) -> None:
        self.data = data
        self.synced = synced
        self.lost: tuple[tuple[int, int], ...] = ()
        """Ranges that count as written but are not on the disk."""

    def written(self) -> bytes:
        """Return the disk's content after everything counts as written."""
        if not self.lost:
            return bytes(self.data)
        result = bytearray(self.data)
        for start, end in self.lost:
            result[start:end] = bytes(end - start)
        return bytes(result)

    def lose(self) -> None:
        """A sync has failed. That a file is shorter is recorded by the file system, which either writes it later or ends."""
        kept = len(commonprefix([self.synced, self.written()]))
        if kept < len(self.data):
            self.lost += ((kept, len(self.data)),)

    def write(self, position: int, added: bytes) -> None:
        self.data += bytes(max(position - len(self.data), 0))
        self.data[position : position + len(added)] = added

    def truncate(self, size: int) -> None:
        self.lost = tuple((start, min(end, size)) for start, end in self.lost if start < size)
        del self.data[size:]
        self.data += bytes(size - len(self.data))

    def lose_power(self, chance: Chance) -> int:
        """Return the number of bytes lost. No process has the file open any more."""
        kept = self._after_power_loss(chance)
        lost = max(0, len(self.data) - len(kept))
        self.data, self.synced, self.lost = bytearray(kept), kept, ()
        return lost

    def _after_power_loss(self, chance: Chance) -> bytes:
        data, synced = self.written(), self.synced
        if data.startswith(synced):
            unsynced = len(data) - len(synced)
            if not unsynced:
                return synced
            kept = chance.between(0, unsynced)
            # The new file size may be on the disk before the appended data.
            zeros = chance.between(0, unsynced - kept) if chance.happens(SHARE_OF_ZEROS) else 0
            return data[: len(synced) + kept] + bytes(zeros)
        # The file was truncated, and perhaps appended to, since the sync.
        return synced if chance.happens(0.5) else bytes(data)


class SimulatedFile:
    """A file handle. Like a real one it knows the end that it has written or found. It must not be used after close."""

    def __init__(self, disk: SimulatedDisk, path: str, content: FileContent) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._size = len(content.data)
        self._is_open = True

    def _meet(self, operation: str) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "closed", self.path)
        self._disk.meet(operation, self.path)

    def size(self) -> int:
        return self._size

    def write_now(self, *buffers: Buffer) -> int:
        written = b"".join(buffers)
        try:
            self._meet("write")
        except DiedWriting as death:
            self._content.write(self._size, written[: int(death.share * len(written))])
            raise
        self._content.write(self._size, written)
        self._size += len(written)
        self._disk.moved(len(written))
        return len(written)

    def try_read(self, position: int, length: int) -> bytes | None:
        is_cold, wanted = self._disk.is_cold(), min(length, self._size - position)
        if wanted <= 0:
            return b""
        found = b"" if is_cold else self.read_cold(position, wanted)
        return found if len(found) == wanted else None

    def read_cold(self, position: int, length: int) -> bytes:
        self._meet("read")
        found = bytes(self._content.data[position : position + length])
        self._disk.moved(len(found))
        return found

    def read_into(self, position: int, buffer: memoryview) -> int:
        found = self.read_cold(position, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        raise OSError(errno.EINVAL, "no sockets in a simulation")

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._meet("truncate")
        self._content.truncate(size)
        self._size = size

    def sync(self) -> None:
        if not self._is_open:
            raise ValueError(f"{self.path} is closed")
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
        self._is_open = False


class Lock:
    """A living process's lock. The end of the process also releases it."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """The disk of one machine. Faults may refuse operations of its processes."""

    is_shared = False

    def __init__(self) -> None:
        self._locks: set[str] = set()
        self._names: Names[FileContent] = Names()
        self.now_ms = 0
        self.fails_sync: Callable[[str], bool] = lambda path: False
        """Called for each sync that has data to write. Returns whether it fails."""
        self.is_cold: Callable[[], bool] = lambda: False
        """Called for each read that must not wait. Returns whether it would wait."""
        self.sync_failed: Callable[[OSError, str], None] = lambda failure, path: None
        """Called for each failed sync."""
        self.meet: Callable[[str, str], None] = lambda operation, path: None
        """Called with each operation and its path, before the operation. An exception that it raises fails the operation."""
        self.moved: Callable[[int], None] = lambda count: None
        """Called with the number of bytes written or read."""
        self.trusted: list[str] = []
        """Files that were synced again after one of their syncs had failed. A process that does so wrongly considers
        them durable."""

    def sync_content(self, path: str, content: FileContent) -> None:
        self.meet("sync", path)
        written = content.written()
        if written != content.synced and self.fails_sync(path):
            content.lose()
            failure = SyncFailed(errno.EIO, "the sync failed", path)
            self.sync_failed(failure, path)
            raise failure
        content.synced = written

    def lose_power(self, chance: Chance) -> tuple[int, int]:
        """Return the lost bytes and the undone changes of names. Files that the ended life had open are separate from
        those of the next."""
        names_lost, bytes_lost = self._names.root.lose_power(chance), 0
        for content in self._names.root.files():
            bytes_lost += content.lose_power(chance)
        return bytes_lost, names_lost

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "another process has the lock", path)
        self.open(path, create=True)
        self._locks.add(path)
        return Lock(self._locks, path)

    def process_ended(self) -> None:
        """Release everything that the process held. A Lock object of that process cannot release a lock of the next process."""
        self._locks = set()

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        is_new = create and self._names.find(path) is None
        self.meet("create" if is_new else "open", path)
        if is_new:
            self._names.put(path, FileContent(bytearray(), b""))
        return SimulatedFile(self, path, self._names.file(path))

    def exists(self, path: str) -> bool:
        self.meet("exists", path)
        return self._names.find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        self.meet("list_directory", path)
        return sorted(self._names.directory(path).entries)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        self.meet("make_directory", path)
        self._names.make_directory(path)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        self.meet("read_bytes", path)
        found = bytes(self._names.file(path).data)[position:]
        found = found if length < 0 else found[:length]
        self.moved(len(found))
        return found

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
        content = FileContent(bytearray(data), b"")
        try:
            self.meet("write_atomic", path)
        except DiedWriting as death:
            content.data = content.data[: int(death.share * len(data))]
            self._names.put(path + ".tmp", content)
            raise
        self.moved(len(data))
        if sync:
            self.sync_content(path, content)
        self._names.put(path, content)
        if sync:
            self._sync_names(posixpath.dirname(path))

    def rename(self, source: str, target: str) -> None:
        self.meet("rename", target)
        self._names.rename(source, target)

    def remove(self, path: str) -> None:
        self.meet("remove", path)
        self._names.remove(path)

    def remove_tree(self, path: str) -> None:
        self.meet("remove_tree", path)
        self._names.remove_tree(path)

    def file_size(self, path: str) -> int:
        self.meet("file_size", path)
        return len(self._names.file(path).data)

    def modified_ms(self, path: str) -> int:
        self.meet("modified_ms", path)
        self._names.entry(path)
        return self.now_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Do nothing: all files count as changed now."""
        self.meet("set_modified_ms", path)
        self._names.entry(path)

    def sync_directory(self, path: str) -> None:
        self.meet("sync_directory", path)
        self._sync_names(path)

    def _sync_names(self, path: str) -> None:
        self._names.directory(path).sync()

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39
