"""Assembles framed record values into the records of a data batch, piece by piece.

Pure. Data records of the metadata log and its snapshots have no key and no headers, and all records of a batch have
one timestamp. So a record is its value with a few bytes around it. The meaning of records is unknown here.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.records.batch import HEADER_SIZE, assemble

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Kafka's bound for one atomic batch of the metadata log or a snapshot."""
_SMALL = 64
"""Smaller zigzag varints have one byte."""


class PackedValues:
    """The body of one batch. Call `add` in order, then `batch`."""

    __slots__ = ("body", "count")

    def __init__(self, values: Sequence[bytes] = ()) -> None:
        self.body = bytearray()
        self.count = 0
        self.add(values)

    @property
    def size_bytes(self) -> int:
        """The size of the batch."""
        return HEADER_SIZE + len(self.body)

    def add(self, values: Sequence[bytes], *, max_bytes: int | None = None) -> int:
        """Add values and return how many were taken: all, or as many as fit into max_bytes, but at least the first one
        of a batch."""
        body, count = self.body, self.count
        for value in values:
            size = len(value)
            delta = _varint(count)
            length = _varint(size)
            # Attributes, timestamp delta, offset delta, no key, the value's length and bytes, no headers.
            record_size = 4 + len(delta) + len(length) + size
            if max_bytes is not None and count and self.size_bytes + record_size + 5 > max_bytes:
                break
            body += b"%b\0\0%b\1%b%b\0" % (_varint(record_size), delta, length, value)
            count += 1
        taken = count - self.count
        self.count = count
        return taken

    def batch(self, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
        return assemble(
            self.body,
            base_offset=base_offset,
            leader_epoch=epoch,
            attributes=0,
            last_offset_delta=self.count - 1,
            base_timestamp_ms=timestamp_ms,
            max_timestamp_ms=timestamp_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=self.count,
        )


def _varint(value: int) -> bytes:
    """A zigzag varint of a non-negative value."""
    if value < _SMALL:
        return _ONE_BYTE[value]
    value <<= 1
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value << 1,)) for value in range(_SMALL)]
