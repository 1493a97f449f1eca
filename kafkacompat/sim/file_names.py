"""The names of files and directories on a simulated machine's disk, and which of them survive a power loss.

A name is durable once its directory was synced. A power loss keeps a random prefix of the later changes to the
directory: new names may be missing, removed names may be back, and a rename is undone completely. The files themselves
keep their content.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, Union

if TYPE_CHECKING:
    from kafkacompat.sim.chance import Chance

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
