"""Compressed rotated files with lines that are not shipped: they were rotated and compressed while no collector ran.

Only files that an earlier run began to read are searched for, by their content. All other compressed files were
shipped earlier, or are older than the collector. Independent of topics and of the use of the result.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import lzma
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol

import zstandard

from kafkacompat.pipeline.collector.followed import Read, Saved, restored
from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, fingerprint

ZSTANDARD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
"""What `zstd` itself accepts without an option. The head of a file may ask for more memory."""


ZSTANDARD_READ_BYTES: Final = 1024
"""Bytes that are decompressed at once. They may contain 32 MiB."""


class Content(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, fewer only where the content ends or is cut off, and none at the end."""


class _ZstandardContent:
    """The frames of a file. The library's own stream ends without an error where a frame is cut off."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._ready = bytearray()

    def read(self, size: int, /) -> bytes:
        # A frame may be shorter than a line.
        while len(self._ready) < size:
            packed = self._packed or self._file.read(ZSTANDARD_READ_BYTES)
            self._packed = b""
            if not packed:
                if self._frame is not None and not self._ready:
                    raise EOFError("a frame of zstandard is cut off")
                break
            if self._frame is None:
                decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTANDARD_WINDOW_BYTES_MAX)
                self._frame = decompressor.decompressobj()
            self._ready += self._frame.decompress(packed)
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found


OPENERS: Final[dict[str, Callable[[BinaryIO], AbstractContextManager[Content]]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": lambda file: contextlib.nullcontext(_ZstandardContent(file)),
}
"""The formats that can be read, by the suffixes of their files."""

NOT_READ: Final = (".zip", ".lz4", ".Z", ".br")
"""Suffixes of other compressed rotated files, which are neither read nor followed."""

UNREADABLE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, MemoryError)
"""MemoryError: the head of a file, perhaps a damaged one, may require a dictionary larger than the memory."""

PASSING: Final = frozenset(
    (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
)
"""Errors of the system that say nothing about the file: a later run may read it."""

PIECE_BYTES: Final = 1024 * 1024

SPARE_SHARE: Final = 0.05
SPARE_BYTES: Final = 1024 * 1024 * 1024
"""Disk space that decompression leaves free: the smaller of this share and this size. A small compressed file may
contain any amount."""


class UnpackingStopped(Exception):
    """The collector is stopping. The next run decompresses the file."""


def is_compressed(path: str) -> bool:
    """Whether the name is that of a compressed rotated file. Its lines were shipped before the compression."""
    return path.endswith((*OPENERS, *NOT_READ))


def beginnings(paths: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fingerprint of the content of each compressed file that can be read, and the errors of those that cannot be
    read now, by path. A damaged file is in neither."""
    found: dict[str, str] = {}
    unread: dict[str, str] = {}
    for path in paths:
        try:
            with _opened(path) as packed, _content(packed, path) as content:
                head = fingerprint(content.read(HEAD_BYTES))
        except (*UNREADABLE, KeyError) as error:
            if isinstance(error, OSError) and error.errno in PASSING:
                unread[path] = error.strerror or str(error)
            continue
        if head is not None:
            found[path] = head
    return found, unread


def unpacked(
    saved: Saved, packed: dict[str, str], folder: str, stopping: Callable[[], bool]
) -> tuple[int, str] | None:
    """Find the compressed file that contains what was read of a file. Return an open file with its content, and its
    path.

    packed: from `beginnings`. The open file has only the beginning of the content and the part that is not shipped,
    each at its offset; the rest is a hole. It has no name and is on the disk of `folder`. Raises OSError with an errno
    if `folder` has no room. Raises OSError without an errno if a file with the same beginning cannot be read and no
    other file matches. Raises UnpackingStopped once stopping() is true, which is checked after each PIECE_BYTES.
    """
    alike = [path for path, head in packed.items() if head == saved.fingerprint]
    if not saved.marks and len(alike) > 1:
        # Only its beginning could identify it, and several files have that.
        return None
    unreadable = None
    for path in alike:
        try:
            descriptor = _unpack(path, max(saved.position - CHECK_BYTES, 0), folder, stopping)
        except UNREADABLE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            unreadable = OSError(None, str(error), path)
            continue
        likeness = restored(saved).likeness(_reader(descriptor), os.fstat(descriptor).st_size)
        if likeness.continues or not saved.marks:
            return descriptor, path
        os.close(descriptor)
    if unreadable is not None:
        raise unreadable
    return None


def _unpack(path: str, start: int, folder: str, stopping: Callable[[], bool]) -> int:
    with (
        _opened(path) as packed,
        _content(packed, path) as content,
        tempfile.TemporaryFile(dir=folder, buffering=0) as file,
    ):
        head = content.read(HEAD_BYTES)
        _write_all(file.fileno(), head, 0)
        position = len(head)
        while piece := content.read(PIECE_BYTES):
            if stopping():
                raise UnpackingStopped
            shipped = max(start - position, 0)
            if shipped < len(piece):
                _leave_spare(file.fileno(), path)
                _write_all(file.fileno(), piece[shipped:], position + shipped)
            position += len(piece)
        return os.dup(file.fileno())


def _leave_spare(descriptor: int, path: str) -> None:
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < min(SPARE_BYTES, SPARE_SHARE * disk.f_blocks * disk.f_frsize):
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} to unpack it beside the state", path)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def _reader(descriptor: int) -> Read:
    return lambda offset, length: os.pread(descriptor, length, offset)


def _opened(path: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        # A pipe with this name would block for ever.
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return open(descriptor, "rb")


def _content(packed: BinaryIO, path: str) -> AbstractContextManager[Content]:
    return OPENERS[os.path.splitext(path)[1]](packed)
