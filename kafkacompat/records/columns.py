"""An uncompressed body as columns: where each record lies, its offset delta, its key, which values are null.

Compaction asks for them: no record becomes an object. Records were checked when they
were appended; here only what would lead astray is looked at. Two gaits, as in check.py:
- a walk over the varints, about 0.4 us a record;
- for runs of records that are built alike (same widths, same lengths of key and value) slices with the record's size as stride
  prove the whole run at once, and the columns come from C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkacompat.records.record import RecordMalformed, append_varint, read_varint

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

_HALF = bytes(i >> 1 for i in range(256))
_HIGH_BIT = bytes(i >> 7 for i in range(256))
_DENSE_LOW = bytes(2 * i & 0x7F | 0x80 for i in range(8192))
_DENSE_HIGH = bytes(2 * i >> 7 for i in range(8192))
_SHORTEST_RUN = 4
_RETRY_AFTER = 16
"""Records walked after a run that did not come about, so that mixed sizes do not pay for trying."""


class Columns:
    """Of n records: `bounds` has n + 1 positions, record i is body[bounds[i]:bounds[i + 1]] with its length in front."""

    __slots__ = ("bounds", "has_null_keys", "keys", "null_values", "offset_deltas")

    def __init__(self) -> None:
        self.bounds: list[int] = []
        self.offset_deltas: list[int] = []
        self.keys: list[bytes | None] = []
        self.null_values: list[int] = []
        """Indexes of records whose value is null, ascending."""
        self.has_null_keys = False


def read_columns(body: bytes, count: int) -> Columns:
    """The columns of `count` records. RecordMalformed when they do not fill the body exactly."""
    columns = Columns()
    bounds, deltas, keys, null_values = (
        columns.bounds,
        columns.offset_deltas,
        columns.keys,
        columns.null_values,
    )
    position, total = 0, len(body)
    index = try_run_at = 0
    add_bound, add_delta, add_key = bounds.append, deltas.append, keys.append
    try:
        while index < count:
            start = position
            size = first_byte = body[position]
            position += 1
            if size > 127:
                byte = body[position]
                position += 1
                if byte > 127:
                    size, position = read_varint(body, start)
                    size <<= 1
                else:
                    size = size & 127 | byte << 7
            end = position + (size >> 1)
            if size & 1 or size < 0 or end > total:
                raise RecordMalformed(f"a record of a wrong size at {start} of {total} bytes")
            timestamp_at = position + 1
            position = timestamp_at
            while body[position] > 127:
                position += 1
            position += 1
            offset_at = position
            delta = body[position]
            position += 1
            if delta > 127:
                byte = body[position]
                position += 1
                if byte > 127:
                    delta, position = read_varint(body, offset_at)
                    delta <<= 1
                else:
                    delta = delta & 127 | byte << 7
            if delta & 1 or delta < 0:
                raise RecordMalformed("a negative offset delta")
            key_at = position
            size = body[position]
            position += 1
            if size > 127:
                size, position = read_varint(body, key_at)
                size = size << 1 if size >= 0 else 1
            key_start = position
            if size & 1:
                add_key(None)
                columns.has_null_keys = True
            else:
                position += size >> 1
                add_key(body[key_start:position])
            key_end = value_at = position
            size = body[position]
            position += 1
            if size > 127:
                size, position = read_varint(body, value_at)
                size = size << 1 if size >= 0 else 1
            value_start = position
            value_is_null = size & 1
            if value_is_null:
                null_values.append(index)
            else:
                position += size >> 1
            if position > end:
                raise RecordMalformed(f"a record's parts end at {position}, its length at {end}")
            add_bound(start)
            add_delta(delta >> 1)
            position = end
            index += 1
            stride = end - start
            ahead = end + stride + stride
            if (
                index < try_run_at
                or ahead >= total
                or body[end] != first_byte
                or body[end + stride] != first_byte
                or body[ahead] != first_byte
                or count - index < _SHORTEST_RUN
            ):
                continue
            run = _run_length(
                body,
                start,
                stride,
                min(count - index, total // stride),
                timestamp_at,
                offset_at,
                key_at,
                key_start,
                value_at,
                value_start,
            )
            if run < _SHORTEST_RUN:
                try_run_at = index + _RETRY_AFTER
                continue
            bounds += range(end, end + run * stride, stride)
            deltas += _offset_column(body, offset_at + stride, key_at - offset_at, stride, run)
            if key_start == key_end and keys[-1] is None:
                keys += [None] * run
            else:
                width = key_end - key_start
                first = key_start + stride
                keys += [body[at : at + width] for at in range(first, first + run * stride, stride)]
            if value_is_null:
                null_values += range(index, index + run)
            index += run
            position = end + run * stride
    except IndexError:
        raise RecordMalformed("the body ends within a record") from None
    if position != total:
        raise RecordMalformed(f"{total - position} bytes after the last record")
    bounds.append(total)
    return columns


def _run_length(
    body: bytes,
    start: int,
    stride: int,
    most: int,
    timestamp_at: int,
    offset_at: int,
    key_at: int,
    key_start: int,
    value_at: int,
    value_start: int,
) -> int:
    """How many records after the one at `start` are built exactly as it is."""
    run = min(most, (len(body) - start) // stride - 1)
    # Lengths: the same bytes. Attributes may be anything.
    for at in (
        *range(start, timestamp_at - 1),
        *range(key_at, key_start),
        *range(value_at, value_start),
    ):
        column = body[at + stride : at + stride * run + 1 : stride]
        run = len(column) - len(column.lstrip(body[at : at + 1]))
        if run < _SHORTEST_RUN:
            return run
    # Timestamp and offset: the same number of bytes, told by the bits that say whether more follow.
    for at in range(timestamp_at, key_at):
        column = body[at + stride : at + stride * run + 1 : stride].translate(_HIGH_BIT)
        run = len(column) - len(column.lstrip(b"\x01" if body[at] > 127 else b"\x00"))
        if run < _SHORTEST_RUN:
            return run
    # Offset deltas are never negative.
    return run


def _offset_column(body: bytes, first: int, width: int, stride: int, run: int) -> bytes | range | list[int]:
    """The offset deltas of a run whose varints have the same width."""
    last = first + stride * (run - 1)
    low = body[first : last + 1 : stride]
    if width == 1:
        return low.translate(_HALF)
    high = body[first + 1 : last + 2 : stride]
    if width == 2:
        begin = (low[0] & 127 | high[0] << 7) >> 1
        if low == _DENSE_LOW[begin : begin + run] and high == _DENSE_HIGH[begin : begin + run]:
            return range(begin, begin + run)
        return [(one & 127 | two << 7) >> 1 for one, two in zip(low, high, strict=True)]
    return [read_varint(body, at)[0] for at in range(first, last + 1, stride)]


def read_keys(body: bytes, count: int) -> tuple[Sequence[bytes | None], bool, bool]:
    """`keys`, whether any is null, and whether any value is. RecordMalformed as read_columns, but for what only values tell."""
    stride = len(body) // count
    first = body[:1]
    if body[stride : stride + 1] == body[2 * stride : 2 * stride + 1] == body[-stride:][:1] == first:
        # Records of one size, most likely: the other gait is the faster one.
        columns = read_columns(body, count)
        return columns.keys, columns.has_null_keys, bool(columns.null_values)
    keys: list[bytes | None] = []
    add_key = keys.append
    has_null_keys = False
    negatives = 0
    end = 0
    try:
        for _ in range(count):
            position = end + 1
            size = body[end]
            if size > 127:
                byte = body[position]
                position += 1
                if byte > 127:
                    size, position = read_varint(body, end)
                    size <<= 1
                else:
                    size = size & 127 | byte << 7
            if size & 1 or size < 0:
                raise RecordMalformed(f"a record of a negative size at {end}")
            end = position + (size >> 1)
            position += 1
            while body[position] > 127:
                position += 1
            position += 1
            while body[position] > 127:
                position += 1
            position += 1
            size = body[position]
            if size > 127:
                size, position = read_varint(body, position)
                size = size << 1 if size >= 0 else 1
            else:
                position += 1
            if size & 1:
                has_null_keys = True
                add_key(None)
                value_at = position
            else:
                value_at = position + (size >> 1)
                add_key(body[position:value_at])
            if value_at >= end:
                raise RecordMalformed(f"a key that ends at {value_at}, its record at {end}")
            # The lowest bit of a varint's first byte is its sign.
            negatives |= body[value_at]
    except IndexError:
        raise RecordMalformed("the body ends within a record") from None
    if end != len(body):
        raise RecordMalformed(f"{count} records end at {end} of {len(body)} bytes")
    return keys, has_null_keys, bool(negatives & 1)


def read_bounds(body: bytes, count: int) -> list[int]:
    """`bounds` alone, of records whose insides nobody asks about. RecordMalformed as read_columns."""
    bounds: list[int] = []
    add_bound = bounds.append
    position = 0
    try:
        for _ in range(count):
            add_bound(position)
            size = body[position]
            if size > 127:
                byte = body[position + 1]
                if byte > 127:
                    size, end = read_varint(body, position)
                    if size < 0:
                        raise RecordMalformed(f"a record of {size} bytes")
                    position = end + size
                    continue
                size = size & 127 | byte << 7
                position += 1
            if size & 1:
                raise RecordMalformed("a record of a negative size")
            position += 1 + (size >> 1)
    except IndexError:
        raise RecordMalformed("the body ends within a record") from None
    if position != len(body):
        raise RecordMalformed(f"{count} records end at {position} of {len(body)} bytes")
    add_bound(position)
    return bounds


def timestamp_delta(body: Buffer, at: int) -> int:
    """Of the record whose length begins at a position, in ms."""
    while body[at] > 127:
        at += 1
    at += 2
    byte = body[at]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1)
    return read_varint(body, at, 64)[0]


def shifted(record: bytes, by_ms: int) -> bytes:
    """A record with its length, its timestamp delta lowered by so many ms."""
    at = 0
    while record[at] > 127:
        at += 1
    delta, rest = read_varint(record, at + 2, 64)
    inside = bytearray(record[at + 1 : at + 2])
    append_varint(inside, delta - by_ms)
    inside += record[rest:]
    moved = bytearray()
    append_varint(moved, len(inside))
    moved += inside
    return bytes(moved)
