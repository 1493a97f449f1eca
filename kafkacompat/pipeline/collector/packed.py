"""Packed leftovers of rotation that hold lines not shipped: a file was rotated and packed while no collector ran.

Only what an earlier run has begun to read is looked for, by its content; whatever else is packed was shipped before, or is
older than the collector. Knows neither topics nor what is done with what it finds.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable
from io import BufferedIOBase
from typing import BinaryIO, Final

from kafkacompat.pipeline.collector.followed import Read, Saved, restored
from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, fingerprint

OPENERS: Final[dict[str, Callable[[BinaryIO], BufferedIOBase]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
}
"""What can be read again; files of other packers stay unread."""

UNREADABLE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)
"""The last one where the head of a file, perhaps a damaged one, asks for a dictionary that there is no room for."""

PIECE_BYTES: Final = 1024 * 1024


def beginnings(paths: Iterable[str]) -> dict[str, str]:
    """Of each packed file that can be read, the fingerprint of what is in it."""
    found = {}
    for path in paths:
        try:
            with _opened(path) as packed, _content(packed, path) as content:
                head = fingerprint(content.read(HEAD_BYTES))
        except (*UNREADABLE, KeyError):
            continue
        if head is not None:
            found[path] = head
    return found


def unpacked(saved: Saved, packed: dict[str, str], folder: str) -> tuple[int, str] | None:
    """The packed file that holds what was read of a file, and perhaps more: an open file of its content, and its path.

    packed: from `beginnings`. Of the content only the beginning and what is not shipped is there, each in its place; the rest
    is a hole. The open file has no name and lies in folder. OSError when that has no room, or when a packed file that begins
    alike cannot be read and no other one is it; only the former has an errno.
    """
    alike = [path for path, head in packed.items() if head == saved.fingerprint]
    if not saved.marks and len(alike) > 1:
        # Nothing but its beginning tells it.
        return None
    unreadable = None
    for path in alike:
        try:
            descriptor = _unpack(path, max(saved.position - CHECK_BYTES, 0), folder)
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


def _unpack(path: str, start: int, folder: str) -> int:
    with (
        _opened(path) as packed,
        _content(packed, path) as content,
        tempfile.TemporaryFile(dir=folder) as file,
    ):
        file.write(content.read(HEAD_BYTES))
        file.seek(content.seek(start))
        shutil.copyfileobj(content, file, PIECE_BYTES)
        file.flush()
        return os.dup(file.fileno())


def _reader(descriptor: int) -> Read:
    return lambda offset, length: os.pread(descriptor, length, offset)


def _opened(path: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        # A pipe by this name would never have anything to read.
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return open(descriptor, "rb")


def _content(packed: BinaryIO, path: str) -> BufferedIOBase:
    return OPENERS[os.path.splitext(path)[1]](packed)
