"""What a share fetch reads of a log: a slice of a file, and the headers of the batches that may be acquired.

Records are sent as they lie in the log, so only headers are read. Headers that are not in the page cache are read by a
worker thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ports import EMPTY_RECORDS, FileSlice
from kafkacompat.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LEGACY_MINIMUM_LENGTH,
    LOG_OVERHEAD,
    MINIMUM_PREFIX,
    TRANSACTIONAL_BIT,
    BatchCorrupt,
    parse_header,
)
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.read import first_record
from kafkacompat.share.values import AcquiredRecords, FetchedBatch

if TYPE_CHECKING:
    from kafkacompat.ports import Records

Read = Callable[[int, int], "bytes | None"]
"""The bytes at a position of a file. None if they are not in the page cache and may not be waited for."""

_HEADER = struct.Struct(">qi4xb4xhi16xq")
"""Base offset, length, magic, attributes, last offset delta, producer id."""
_READ_BYTES_MIN = 4 * 1024
_READ_BYTES_MAX = 64 * 1024
_MARKER_BYTES = 512
"""A control batch has one small record."""


class FetchedRecords:
    """The beginning of a slice, as far as its records may be acquired."""

    __slots__ = ("batches", "records", "starts")

    def __init__(self, records: Records, batches: list[FetchedBatch], starts: list[int]) -> None:
        self.records = records
        self.batches = batches
        self.starts = starts
        """Where each batch begins in the slice, and where the last one ends."""

    def slice_of(self, acquired: Sequence[AcquiredRecords]) -> Records:
        """The batches with the acquired records. As in Kafka, those between the first and the last are all sent."""
        records = self.records
        if not acquired or not isinstance(records, FileSlice):
            return EMPTY_RECORDS
        first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
        batches, starts = self.batches, self.starts
        first = 0
        last = len(batches) - 1
        while first < last and batches[first + 1].base_offset <= first_offset:
            first += 1
        while last > first and batches[last].base_offset > last_offset:
            last -= 1
        start = starts[first]
        return FileSlice(records.file, records.position + start, starts[last + 1] - start)


def read_batches(
    records: Records, until_offset: int, *, finds_markers: bool, waits: bool
) -> FetchedRecords | None:
    """The headers of the complete batches of a slice, up to the one with `until_offset`.

    None if they are not in the page cache and this must not wait. `finds_markers`: tell the markers of aborted
    transactions apart. Raises BatchCorrupt, OSError.
    """
    batches: list[FetchedBatch] = []
    starts: list[int] = []
    if not isinstance(records, FileSlice):
        return FetchedRecords(records, batches, starts)
    file, begin = records.file, records.position
    read: Read = file.read_cold if waits else file.try_read
    unpack, position, end = _HEADER.unpack_from, 0, records.length
    data = b""
    at = 0
    wanted = _READ_BYTES_MIN
    while end - position >= MINIMUM_PREFIX:
        inside = position - at
        if inside + HEADER_SIZE > len(data):
            # Small batches lie close together, so the next reads are longer. Large ones cost a read each.
            wanted = min(2 * wanted, _READ_BYTES_MAX) if inside < 2 * len(data) else _READ_BYTES_MIN
            piece = read(begin + position, min(wanted, end - position))
            if piece is None:
                return None
            data, at, inside = piece, position, 0
            if len(data) < MINIMUM_PREFIX:
                raise BatchCorrupt(f"{file.path} ends before byte {begin + end}")
        if len(data) - inside < HEADER_SIZE or data[inside + 16] != 2:
            batch, size = _other_batch(data, inside)
        else:
            base_offset, length, _, attributes, delta, producer_id = unpack(data, inside)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE:
                raise BatchCorrupt(f"a batch of {size} bytes at {begin + position} of {file.path}")
            is_marker = False
            if finds_markers and attributes & CONTROL_BIT and size <= end - position:
                found = _is_abort_marker(read, begin + position, size)
                if found is None:
                    return None
                is_marker = found
            batch = FetchedBatch(
                base_offset, base_offset + delta, producer_id, bool(attributes & TRANSACTIONAL_BIT), is_marker
            )
        if size > end - position:
            break
        batches.append(batch)
        starts.append(position)
        position += size
        if batch.last_offset >= until_offset:
            break
    starts.append(position)
    return FetchedRecords(records, batches, starts)


def _other_batch(data: bytes, inside: int) -> tuple[FetchedBatch, int]:
    """A message of an old format, or what is left of a batch at the end."""
    length = int.from_bytes(data[inside + 8 : inside + LOG_OVERHEAD], "big", signed=True)
    if length < LEGACY_MINIMUM_LENGTH:
        raise BatchCorrupt(f"a batch with the length {length}")
    try:
        header = parse_header(data, inside)
    except (struct.error, IndexError):
        return FetchedBatch(-1, -1), len(data) + LOG_OVERHEAD + length
    return FetchedBatch(header.base_offset, header.last_offset, header.producer_id), header.size


def _is_abort_marker(read: Read, position: int, size: int) -> bool | None:
    batch = read(position, min(size, _MARKER_BYTES))
    if batch is None:
        return None
    record = first_record(batch, parse_header(batch))
    return record is not None and parse_control_key(record.key) == ControlType.ABORT
