"""Walks over the batches of a file in large reads: headers for lookups, checked batches for recovery.

It does not use offsets or indexes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MINIMUM_PREFIX,
    BatchCorrupt,
    BatchHeader,
    has_valid_crc,
    parse_header,
)

if TYPE_CHECKING:
    from kafkacompat.ports import File

ITERATE_CHUNK = 1024 * 1024
"""Bytes per read for long walks."""

_LENGTH = struct.Struct(">i")
_LEAST_SIZE = LOG_OVERHEAD + 14


def headers(file: File, start: int, limit: int, chunk: int) -> Iterator[BatchHeader]:
    """Headers of the complete batches between two positions. An incomplete batch ends the walk. Raises BatchCorrupt
    for an invalid header."""
    window = _Window(
        file,
        start,
        limit,
        chunk,
        lambda position, size: file.try_read(position, size) or file.read_cold(position, size),
    )
    position = start
    while (header := window.header(position)) is not None:
        yield header
        position += header.size


def checked_batches(file: File, limit: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch up to the limit with its bytes. Raises BatchCorrupt at the first incomplete or invalid one."""
    for header, batch in whole_batches(file, limit, ITERATE_CHUNK):
        if not has_valid_crc(batch, header):
            raise BatchCorrupt(f"the crc of the batch at {header.position} is wrong")
        yield header, batch


def whole_batches(
    file: File, limit: int, chunk: int, on_read: Callable[[int], None] | None = None, start: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from `start`, which must be the beginning of a batch, up to the limit, with its bytes. The CRC is
    not checked. Raises BatchCorrupt at the first incomplete batch.

    `on_read` is called with the size of every read, before the read.
    """

    def read(position: int, size: int) -> bytes:
        if on_read is not None:
            on_read(size)
        return file.read_cold(position, size)

    window = _Window(file, start, limit, chunk, read)
    position = start
    while position < limit:
        header = window.header(position)
        if header is None:
            raise BatchCorrupt(
                f"the {limit - position} bytes at {position} of {file.path} hold no whole batch"
            )
        yield header, window.batch(header)
        position += header.size


class _Window:
    """The last piece read from a file. It only moves forward."""

    __slots__ = ("_at", "_chunk", "_data", "_file", "_limit", "_read")

    def __init__(
        self, file: File, start: int, limit: int, chunk: int, read: Callable[[int, int], bytes]
    ) -> None:
        self._file = file
        self._limit = limit
        self._chunk = chunk
        self._read = read
        self._data = b""
        self._at = start

    def header(self, position: int) -> BatchHeader | None:
        """The header of the batch at a position. None if no complete batch is left before the limit. Raises
        BatchCorrupt for an invalid header."""
        data, inside, left = self._data, position - self._at, self._limit - position
        if left < MINIMUM_PREFIX:
            return None
        if len(data) - inside < HEADER_SIZE and len(data) - inside < left:
            data, inside = self._move_to(position, self._chunk), 0
        if len(data) < inside + MINIMUM_PREFIX:
            raise BatchCorrupt(
                f"{self._file.path} ends at {position + len(data) - inside}, before {self._limit}"
            )
        size = _LENGTH.unpack_from(data, inside + 8)[0] + LOG_OVERHEAD
        if size < _LEAST_SIZE:
            raise BatchCorrupt(f"a batch of {size} bytes at {position} of {self._file.path}")
        if size > left:
            return None
        try:
            header = parse_header(data, inside)
        except struct.error as error:
            raise BatchCorrupt(f"no batch at {position} of {self._file.path}") from error
        header.position = position
        return header

    def batch(self, header: BatchHeader) -> memoryview:
        """The bytes of the batch whose header was requested last."""
        data, inside = self._data, header.position - self._at
        if inside + header.size > len(data):
            data, inside = self._move_to(header.position, max(header.size, self._chunk)), 0
        return memoryview(data)[inside : inside + header.size]

    def _move_to(self, position: int, size: int) -> bytes:
        self._data = self._read(position, min(size, self._limit - position))
        self._at = position
        return self._data
