"""The door to the disk, and runs of a file's bytes that are sent as they lie.

Protocols, the values that cross them, and nothing that acts. Implementations live in shells and in the simulator.
"""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | bytearray | memoryview


class SyncFailed(OSError):
    """fsync itself failed. What it covered may never reach the disk, and the next sync need not say so: Linux tells it once."""


class HalfDone(OSError):
    """A change of several files stopped in its midst: what is known of them is not what lies there any more."""


class File(Protocol):
    """One open file that grows at its end. Positions and sizes in bytes. OSError passes through."""

    path: str

    def size(self) -> int: ...

    def write_now(self, *buffers: Buffer) -> int:
        """Append all buffers (one writev) to the page cache; on a short or failed write the file is cut back and OSError raised."""
        ...

    def try_read(self, position: int, length: int) -> bytes | None:
        """Bytes if they are in the page cache, None if reading would block (preadv RWF_NOWAIT)."""
        ...

    def read_cold(self, position: int, length: int) -> bytes:
        """Bytes, blocking on the disk when need be; shorter only at the end of the file."""
        ...

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        """os.sendfile to a non-blocking socket; returns bytes sent; BlockingIOError when the socket is full."""
        ...

    def fileno(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fsync; only from a worker thread, or at start and shutdown. SyncFailed when the disk refused it."""
        ...

    def forget_cached(self) -> None:
        """Sync, then drop what the page cache has of it: what is read from here on comes from the disk. At a start only."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are absolute strings. OSError passes through."""

    is_shared: bool
    """Other processes of this node's see the same files."""

    def lock(self, path: str) -> DirectoryLock:
        """Of this file, which is made if need be, until it is released or the process ends. BlockingIOError when another
        process has it."""
        ...

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def make_directory(self, path: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """path.tmp, fsync, rename, fsync of the directory. SyncFailed as from a file's sync."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Make its renames and new names durable. Blocks. SyncFailed as from a file's sync."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the file system that holds path."""
        ...


class FileSlice:
    """A run of bytes in an open file, the value of a `records` field: its length is known, its bytes stay in the page cache.

    Whoever holds it keeps the file open: `file` is closed only when no slice refers to it (Segment closes late).
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
