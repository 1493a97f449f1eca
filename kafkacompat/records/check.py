"""The strict check of an uncompressed body without making objects: the hot path's reading of records.

Duty: the same verdict as record.iterate_records plus "offset deltas are 0..n-1", and the range of the timestamps. Must not
know: what the verdict is for. Every record of a batch is checked, because Kafka refuses a malformed one wherever it
lies. Two gaits make that cheap:
- a walk over the varints, about 0.35 us a record;
- for runs of records of one size (what loads and most pipelines send) a check in C: in such a run each structural byte
  recurs at a fixed stride, so slices with that stride, compared against constants and against a table of offsets,
  prove the whole run at about 0.01 us a record. A record that breaks the pattern ends the run and is walked.
A property test holds the verdicts of both gaits and of record.py equal.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.records.record import RecordMalformed, read_varint

_ONE_BYTE_OFFSETS = bytes(2 * i for i in range(64))
_OFFSET_LOW = bytes(2 * i & 0x7F | 0x80 for i in range(8192))
_OFFSET_HIGH = bytes(2 * i >> 7 for i in range(8192))
_PARITY = bytes(i & 1 for i in range(256))
_RETRY_AFTER = 8
"""Records walked after a run that did not come about, so that mixed sizes do not pay for trying."""


class BodyFacts(NamedTuple):
    """Timestamp deltas in ms. The least is exact when negative, else a lower bound of 0 or above."""

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool


def check_records(body: bytes, count: int) -> BodyFacts:
    """Raise RecordMalformed unless the body is exactly `count` well-formed records with offset deltas 0..count-1."""
    position, total = 0, len(body)
    index = 0
    least, greatest = 0, -(1 << 62)
    null_key = False
    try_run_at = 0
    try:
        while index < count:
            start = position
            byte = body[position]
            position += 1
            if byte > 127:
                second = body[position]
                position += 1
                if second > 127:
                    size, position = read_varint(body, start)
                    if size < 0:
                        raise RecordMalformed(f"a record of {size} bytes")
                    byte = size << 1
                else:
                    byte = byte & 127 | second << 7
            if byte & 1:
                raise RecordMalformed("a record of a negative size")
            timestamp_at = position + 1
            end = position + (byte >> 1)
            if end > total:
                raise RecordMalformed(f"a record of {byte >> 1} bytes where {total - position} remain")
            delta = body[timestamp_at]
            position = timestamp_at + 1
            if delta > 127:
                delta, position = read_varint(body, timestamp_at, 64)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            if delta > greatest:
                greatest = delta
            if delta < least:
                least = delta
            offset_at = position
            byte = body[position]
            position += 1
            if byte > 127:
                second = body[position]
                position += 1
                if second > 127:
                    offset, position = read_varint(body, offset_at)
                    byte = offset << 1
                else:
                    byte = byte & 127 | second << 7
            if byte != index + index:
                raise RecordMalformed(f"offset delta {byte >> 1} in the place of {index}")
            key_at = position
            byte = body[position]
            position += 1
            if byte > 127:
                size, position = read_varint(body, key_at)
                byte = size << 1 if size >= 0 else 1
            if byte & 1:
                null_key = True
            else:
                position += byte >> 1
            value_at = position
            byte = body[position]
            position += 1
            if byte > 127:
                second = body[position]
                position += 1
                if second > 127:
                    size, position = read_varint(body, value_at)
                    byte = size << 1 if size >= 0 else 1
                else:
                    byte = byte & 127 | second << 7
            value_end = position
            if not byte & 1:
                position += byte >> 1
            headers_at = position
            header_byte = body[position]
            position += 1
            if header_byte:
                position = _skip_headers(body, headers_at, end)
            if position != end:
                raise RecordMalformed(f"a record's parts end at {position}, its length at {end}")
            index += 1
            if header_byte or index < try_run_at or count - index < 4:
                continue
            stride = end - start
            # Two more records that begin with the same length are worth the attempt.
            if end + stride >= total or body[end] != body[start] or body[end + stride] != body[start]:
                continue
            run, run_greatest = _check_run(
                body,
                start,
                stride,
                index,
                count,
                timestamp_at,
                offset_at,
                key_at,
                value_at,
                value_end,
                headers_at,
            )
            if run:
                index += run
                position += run * stride
                if run_greatest > greatest:
                    greatest = run_greatest
            if run < 4:
                try_run_at = index + _RETRY_AFTER
    except IndexError:
        raise RecordMalformed("the body ends within a record") from None
    if position != total:
        raise RecordMalformed(f"{total - position} bytes after the last record")
    return BodyFacts(least, greatest, null_key)


def _skip_headers(body: bytes, position: int, end: int) -> int:
    count, position = read_varint(body, position)
    if count < 0 or count > end - position:
        raise RecordMalformed(f"a header count of {count}")
    for _ in range(count):
        size, position = read_varint(body, position)
        if size < 0:
            raise RecordMalformed("a header without a key")
        position += size
        size, position = read_varint(body, position)
        if size > 0:
            position += size
        if position > end:
            raise RecordMalformed("a header beyond its record")
    return position


def _check_run(
    body: bytes,
    start: int,
    stride: int,
    index: int,
    count: int,
    timestamp_at: int,
    offset_at: int,
    key_at: int,
    value_at: int,
    value_end: int,
    headers_at: int,
) -> tuple[int, int]:
    """(records after the model at `start` that share its layout, their greatest timestamp delta).

    The model ends at start + stride and has the offset delta index - 1. 0 records when there is no run.
    """
    timestamp_width = offset_at - timestamp_at
    offset_width = key_at - offset_at
    last = min(count, 64) if offset_width == 1 else min(count, 8192)
    run = min(last - index, (len(body) - start) // stride - 1)
    if run < 3 or timestamp_width > 2 or offset_width > 2:
        return 0, 0
    # Each position is one byte of structure; the same byte must stand there in every record of the run. Of the key's and
    # the value's length the first bytes suffice with the last one's stop bit, so all of their bytes are compared.
    key_end = key_at + 1
    while body[key_end - 1] > 127:
        key_end += 1
    for at in (
        *range(start, timestamp_at - 1),
        *range(key_at, key_end),
        *range(value_at, value_end),
        headers_at,
    ):
        column = body[at + stride : at + stride * run + 1 : stride]
        kept = len(column) - len(column.lstrip(body[at : at + 1]))
        if kept < run:
            if kept < 3:
                return 0, 0
            run = kept
    first = offset_at + stride
    column = body[first : first + stride * (run - 1) + 1 : stride]
    if offset_width == 1:
        if column != _ONE_BYTE_OFFSETS[index : index + run]:
            return 0, 0
    else:
        high = body[first + 1 : first + stride * (run - 1) + 2 : stride]
        if column != _OFFSET_LOW[index : index + run] or high != _OFFSET_HIGH[index : index + run]:
            return 0, 0
    first = timestamp_at + stride
    column = body[first : first + stride * (run - 1) + 1 : stride]
    if 1 in column.translate(_PARITY):
        return 0, 0
    if timestamp_width == 1:
        if not column.isascii():
            return 0, 0
        return run, max(column) >> 1
    high = body[first + 1 : first + stride * (run - 1) + 2 : stride]
    if not high.isascii() or min(column) < 128:
        return 0, 0
    top = max(high)
    if high == bytes((top,)) * run:
        low = max(column)
    else:
        low = max(low for low, byte in zip(column, high, strict=True) if byte == top)
    return run, (low & 127 | top << 7) >> 1
