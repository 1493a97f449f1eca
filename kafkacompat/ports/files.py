"""The interface to the disk, and slices of a file that are sent without copying.

Protocols and their values; nothing here acts. The implementations are in shells and in the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Buffer = bytes | bytearray | memoryview
ORDINARY_MODE = 0o644


class SyncFailed(OSError):
    """An fsync has failed. The data it covered may never reach the disk. Linux reports that once, so the next sync may
    succeed."""


class HalfDone(OSError):
    """A change of several files has stopped half way: the files differ from what the process knows."""


class File(Protocol):
    """One open file that grows at its end. Positions and sizes in bytes. Raises OSError."""

    path: str

    def size(self) -> int: ...

    def write_now(self, *buffers: Buffer) -> int:
        """Append all buffers to the page cache (one writev). After a short or failed write the file is cut back and
        OSError is raised."""
        ...

    def try_read(self, position: int, length: int) -> bytes | None:
        """The bytes if they are in the page cache, None if the read would block (preadv with RWF_NOWAIT)."""
        ...

    def read_cold(self, position: int, length: int) -> bytes:
        """The bytes. Blocks on the disk if necessary. Shorter only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer as `read_cold` would. Returns the bytes read: fewer only at the end of the file."""
        ...

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        """os.sendfile to a non-blocking socket. Returns the bytes sent. Raises BlockingIOError if the socket is full."""
        ...

    def fileno(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fsync. Only in a worker thread, or at start and shutdown. Raises SyncFailed if the disk refuses it."""
        ...

    def forget_cached(self) -> None:
        """Sync, then drop the file from the page cache, so that later reads come from the disk. Only at a start."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are absolute strings. Raises OSError."""

    is_shared: bool
    """Whether other processes of this node see the same files."""

    def lock(self, path: str) -> DirectoryLock:
        """Lock this file, which is created if necessary, until the lock is released or the process ends. Raises
        BlockingIOError if another process has it."""
        ...

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool:
        """Raises OSError if the disk does not tell."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def make_directory(self, path: str, *, private: bool = False) -> None:
        """An existing one stays as it is. `private`: nobody but the node's user may open a new one."""
        ...

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        """The file, or a piece of it. It may be a file that nobody may write. Blocks on the disk if necessary."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        """Write path.tmp, fsync it, rename it, and fsync the directory. Raises SyncFailed like a file's sync.

        With another `mode` than the ordinary one, nobody else may read the file from its first byte on.
        """
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Make new and changed names in a directory durable. Blocks. Raises SyncFailed like a file's sync."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the file system that contains `path`."""
        ...


MEETS: Mapping[str, frozenset[str]] = {
    "write_now": frozenset({"write"}),
    "try_read": frozenset({"read"}),
    "read_cold": frozenset({"read"}),
    "read_into": frozenset({"read"}),
    "forget_cached": frozenset({"sync"}),
    "open": frozenset({"open", "create"}),
    **dict.fromkeys(("size", "send_to", "fileno", "close", "lock"), frozenset[str]()),
    **{
        name: frozenset({name})
        for name in (
            "truncate",
            "sync",
            "exists",
            "list_directory",
            "make_directory",
            "read_bytes",
            "write_atomic",
            "rename",
            "remove",
            "remove_tree",
            "file_size",
            "modified_ms",
            "set_modified_ms",
            "sync_directory",
            "usage",
        )
    },
}
"""What a disk may refuse, by the method of `File` or `Disk` that does it: what the doubles of tests and of the simulation meet, and
refuse. sim/_tests/test_disks.py holds them to it."""

WRITES = frozenset({"write", "create", "write_atomic", "make_directory"})
CHANGES = WRITES | {"open", "rename", "remove", "remove_tree", "truncate", "set_modified_ms"}
""""open": files are opened for writing."""
SYNCS = frozenset({"sync", "sync_directory"})
OPERATIONS = frozenset().union(*MEETS.values())
"""All of them. What neither changes nor syncs reads."""


class FileSlice:
    """A run of bytes in an open file, the value of a `records` field. Its length is known; its bytes stay in the page
    cache.

    A slice keeps the file open: `file` closes when no slice refers to it any more.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read_cold(self.position, self.length)
