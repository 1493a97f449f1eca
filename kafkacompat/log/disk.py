"""Files and directories of a real disk, as ports.Disk and ports.File.

This module makes system calls and does not know what the bytes mean. A file closes itself when nothing refers to it
any more. So a slice that a connection is still sending outlives the segment's deletion.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkacompat.ports import ORDINARY_MODE, SyncFailed

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Of stat: nothing has the name. Other errors tell nothing about that."""
_IS_LOCKED = frozenset({errno.EAGAIN, errno.EACCES})
_READ_NOW = getattr(os, "RWF_NOWAIT", 0)
_WRITE_LIMIT = 512
"""Buffers in one writev call. The kernel's limit is 1024."""


_open_now: set[int] = set()
"""The descriptors of the process's open files. A set, because threads open files and count them without a lock."""


def open_files() -> int:
    """How many files of this process are open."""
    return len(_open_now)


class RealFile:
    """A file on disk that grows at its end. Sizes and positions in bytes."""

    __slots__ = ("_fd", "_read_flags", "_size", "path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        _open_now.add(self._fd)
        self.path = path
        self._size = os.fstat(self._fd).st_size
        self._read_flags = _READ_NOW

    def size(self) -> int:
        return self._size

    def write_now(self, *buffers: Buffer) -> int:
        start = self._size
        try:
            if len(buffers) == 1:
                written, expected = os.pwrite(self._fd, buffers[0], start), len(buffers[0])
            else:
                written, expected = self._write_gathered(buffers), sum(map(len, buffers))
            if written != expected:
                raise OSError(errno.ENOSPC, f"wrote {written} of {expected} bytes", self.path)
        except OSError as error:
            os.ftruncate(self._fd, start)
            # The system call's error has a number only.
            error.filename = self.path
            raise
        self._size = start + written
        return written

    def _write_gathered(self, buffers: tuple[Buffer, ...]) -> int:
        written = 0
        for first in range(0, len(buffers), _WRITE_LIMIT):
            written += os.pwritev(self._fd, buffers[first : first + _WRITE_LIMIT], self._size + written)
        return written

    def try_read(self, position: int, length: int) -> bytes | None:
        wanted = min(length, self._size - position)
        if wanted <= 0:
            return b""
        if not self._read_flags:
            return os.pread(self._fd, wanted, position)
        buffer = bytearray(wanted)
        try:
            got = os.preadv(self._fd, [buffer], position, self._read_flags)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # Some file systems (tmpfs, some overlays) do not support this flag. Reading is then the only way to find
            # out.
            self._read_flags = 0
            return os.pread(self._fd, wanted, position)
        return bytes(buffer) if got == wanted else None

    def read_cold(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        got = 0
        while got < len(buffer) and (more := os.preadv(self._fd, [buffer[got:]], position + got)):
            got += more
        return got

    def send_to(self, socket_fileno: int, position: int, length: int) -> int:
        return os.sendfile(socket_fileno, self._fd, position, length)

    def fileno(self) -> int:
        return self._fd

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        _sync(self._fd, self.path)

    def forget_cached(self) -> None:
        self.sync()
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _open_now.discard(fd)
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """POSIX record locks (lockf), which Java's FileLock uses on Linux. A flock lock would not exclude a Java process."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        while True:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._fd)
                if error.errno in _IS_LOCKED:
                    raise BlockingIOError(errno.EAGAIN, "another process has the lock", path) from error
                raise
            if self._is_named():
                return
            # Whoever had it has removed it since it was opened here.
            os.close(self._fd)

    def _is_named(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the file, as Apache Kafka does, and give up the lock."""
        with suppress(OSError):
            os.remove(self._path)
        os.close(self._fd)


class RealDisk:
    """The machine's file systems. Where it matters, renames and removals are made durable by syncing the directory."""

    __slots__ = ()
    is_shared = True

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, create=create)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
        return True

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str, *, private: bool = False) -> None:
        mode = 0o700 if private else 0o777
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise
        except FileNotFoundError:
            os.makedirs(path, mode)

    def read_bytes(self, path: str, position: int = 0, length: int = -1) -> bytes:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read(length)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        temporary = path + ".tmp"
        if mode != ORDINARY_MODE:
            # A killed process may have left a file of this name that nobody may write.
            with suppress(FileNotFoundError):
                os.remove(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                if sync:
                    _sync(fd, temporary)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        except OSError as error:
            error.filename = path
            # On a full disk the temporary file would keep using space.
            with suppress(OSError):
                os.remove(temporary)
            raise
        if sync:
            sync_directory(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_directory(self, path: str) -> None:
        sync_directory(path)

    def usage(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def sync_directory(path: str) -> None:
    """Make a directory's renames and new names durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd, path)
    finally:
        os.close(fd)


def _sync(fd: int, path: str) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, f"the sync failed: {error.strerror}", path) from error
