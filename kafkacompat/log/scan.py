"""Walking the batches of a file in large reads.

Duty: headers for lookups, checked batches for recovery. Must not know: offsets that are looked for, indexes.
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
"""Bytes of one read where much will be walked."""

_LENGTH = struct.Struct(">i")
_LEAST_SIZE = LOG_OVERHEAD + 14


def headers(file: File, start: int, limit: int, chunk: int) -> Iterator[BatchHeader]:
    """Headers of whole batches between two positions; a cut-off one ends the walk. BatchCorrupt where none can lie."""
    position, data, data_at = start, b"", start
    while limit - position >= MINIMUM_PREFIX:
        inside = position - data_at
        if len(data) - inside < HEADER_SIZE and data_at + len(data) < limit:
            wanted = min(chunk, limit - position)
            data = file.try_read(position, wanted) or file.read_cold(position, wanted)
            data_at, inside = position, 0
        size = (
            _LENGTH.unpack_from(data, inside + 8)[0] + LOG_OVERHEAD
            if len(data) - inside >= MINIMUM_PREFIX
            else 0
        )
        if size < _LEAST_SIZE:
            raise BatchCorrupt(f"a batch of {size} bytes at {position} of {file.path}")
        if size > limit - position:
            return
        yield _header(file, data, inside, position)
        position += size


def checked_batches(file: File, limit: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch up to the limit with its bytes. BatchCorrupt at the first that is not whole and sound."""
    for header, batch in whole_batches(file, limit, ITERATE_CHUNK):
        if not has_valid_crc(batch, header):
            raise BatchCorrupt(f"the crc of the batch at {header.position} is wrong")
        yield header, batch


def whole_batches(
    file: File, limit: int, chunk: int, on_read: Callable[[int], None] | None = None, start: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch from `start`, where one begins, up to the limit with its bytes, unchecked. BatchCorrupt at the first that is not
    whole.

    `on_read` is told of every read, in bytes, before it is made.
    """
    position, data, data_at = start, b"", start

    def read(length: int) -> bytes:
        if on_read is not None:
            on_read(min(length, limit - position))
        return file.read_cold(position, min(length, limit - position))

    while position < limit:
        inside = position - data_at
        if len(data) - inside < HEADER_SIZE and data_at + len(data) < limit:
            data, data_at, inside = read(chunk), position, 0
        if len(data) - inside < MINIMUM_PREFIX:
            raise BatchCorrupt(f"{len(data) - inside} bytes at {position} are no batch")
        size = _LENGTH.unpack_from(data, inside + 8)[0] + LOG_OVERHEAD
        if size < _LEAST_SIZE or size > limit - position:
            raise BatchCorrupt(f"a batch of {size} bytes where {limit - position} remain")
        if inside + size > len(data):
            data, data_at, inside = read(max(size, chunk)), position, 0
        header = _header(file, data, inside, position)
        yield header, memoryview(data)[inside : inside + size]
        position += size


def _header(file: File, data: bytes, inside: int, position: int) -> BatchHeader:
    try:
        header = parse_header(data, inside)
    except struct.error as error:
        raise BatchCorrupt(f"no batch at {position} of {file.path}") from error
    header.position = position
    return header
