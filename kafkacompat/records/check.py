"""The strict check of an uncompressed body without making objects: the hot path's reading of records.

The verdict is that of record.iterate_records plus "offset deltas are 0..n-1", and the range of the timestamps.
Every record of a batch is checked, because Kafka refuses a malformed one wherever it lies. Two gaits make that cheap:
- a walk over the varints, about 0.35 us a record;
- for runs of records of one size (what loads and most pipelines send) a check in C: in such a run each structural byte
  recurs at a fixed stride, so slices with that stride, compared against constants and against a table of offsets,
  prove the whole run at about 0.01 us a record. A record that breaks the pattern ends the run and is walked.
A property test holds the verdicts of both gaits and of record.py equal.

A batch can hold millions of records and headers, so the check can be done in steps: it stops after so many units of work (a record
walked, a header, or 16 records that may be a run; about half a microsecond each; a varint that is read byte by byte is several) and
gives back where it stands.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.records.limits import UNLIMITED, BatchLimits, RecordLimitExceeded
from kafkacompat.records.record import RecordMalformed, read_varint

_ONE_BYTE_OFFSETS = bytes(2 * i for i in range(64))
_OFFSET_LOW = bytes(2 * i & 0x7F | 0x80 for i in range(8192))
_OFFSET_HIGH = bytes(2 * i >> 7 for i in range(8192))
_PARITY = bytes(i & 1 for i in range(256))
_RETRY_AFTER = 8
"""Records walked after a run that did not come about, so that mixed sizes do not pay for trying."""
ALL_AT_ONCE = 1 << 62
VARINT_UNITS = 3
_LONGEST_TRY = 8192
_SHORTEST_TRY = 64
_TRY_GROWTH = 8
_TRY_SHIFT = 4
"""A run that is tried costs a sixteenth of a unit for each of its records, whether it comes about or not."""


class BodyFacts(NamedTuple):
    """Timestamp deltas in ms. The least is exact when negative, else a lower bound of 0 or above."""

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool
    units: int
    """Of work in the last step."""


class Unfinished(NamedTuple):
    """Where a check stands that has more to do."""

    position: int
    reached: int
    headers: int
    least: int
    greatest: int
    null_key: bool


_BEGINNING = Unfinished(0, 0, 0, 0, -(1 << 62), False)


def check_whole(body: bytes | bytearray, count: int, limits: BatchLimits = UNLIMITED) -> BodyFacts:
    """`check_records` in one step."""
    facts = check_records(body, count, limits)
    assert isinstance(facts, BodyFacts)
    return facts


def check_records(
    body: bytes | bytearray,
    count: int,
    limits: BatchLimits = UNLIMITED,
    units: int = ALL_AT_ONCE,
    since: Unfinished = _BEGINNING,
) -> BodyFacts | Unfinished:
    """Raise RecordMalformed unless the body is exactly `count` well-formed records with offset deltas 0..count-1.

    Raises RecordLimitExceeded for more headers than the limits take. After `units` of work where it stands is given back.
    """
    position, index, headers, least, greatest, null_key = since
    total = len(body)
    try_run_at = 0
    # A run that ends early makes the next try a short one: a try costs what was tried, and sizes may be such that each fails.
    most = _LONGEST_TRY
    stop = index + units
    try:
        while index < count:
            if index >= stop:
                return Unfinished(position, index, headers, least, greatest, null_key)
            start = position
            byte = body[position]
            position += 1
            if byte > 127:
                second = body[position]
                position += 1
                if second > 127:
                    size, position = read_varint(body, start)
                    stop -= VARINT_UNITS
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
                stop -= VARINT_UNITS
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
                    third = body[position]
                    position += 1
                    if third > 127:
                        offset, position = read_varint(body, offset_at)
                        stop -= VARINT_UNITS
                        byte = offset << 1
                    else:
                        # A batch of a million records has most of its offsets here.
                        byte = byte & 127 | (second & 127) << 7 | third << 14
                else:
                    byte = byte & 127 | second << 7
            if byte != index + index:
                raise RecordMalformed(f"offset delta {byte >> 1} in the place of {index}")
            key_at = position
            byte = body[position]
            position += 1
            if byte > 127:
                size, position = read_varint(body, key_at)
                stop -= VARINT_UNITS
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
                    stop -= VARINT_UNITS
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
                position, found, varints = _skip_headers(body, headers_at, end, limits.headers_a_record)
                headers += found
                if headers > limits.headers:
                    raise RecordLimitExceeded(f"a batch with more than {limits.headers} headers", splits=True)
                stop -= found + varints * VARINT_UNITS
            if position != end:
                raise RecordMalformed(f"a record's parts end at {position}, its length at {end}")
            index += 1
            if header_byte or index < try_run_at or count - index < 4:
                continue
            stride = end - start
            # Two more records that begin with the same length are worth the attempt.
            if end + stride >= total or body[end] != body[start] or body[end + stride] != body[start]:
                continue
            # Offsets of one byte end at 63, and those of two at 8191.
            tried = _SHORTEST_TRY if key_at - offset_at == 1 else _LONGEST_TRY
            if tried > count:
                tried = count
            tried -= index
            if tried < 4:
                continue
            if tried > most:
                tried = most
            run, run_greatest = _check_run(
                body,
                start,
                stride,
                index,
                index + tried,
                timestamp_at,
                offset_at,
                key_at,
                value_at,
                value_end,
                headers_at,
            )
            stop += run - (tried >> _TRY_SHIFT)
            if run << _TRY_SHIFT < tried:
                most = _SHORTEST_TRY
            elif most < _LONGEST_TRY:
                most *= _TRY_GROWTH
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
    return BodyFacts(least, greatest, null_key, units - (stop - index))


def _skip_headers(body: bytes | bytearray, position: int, end: int, most: int) -> tuple[int, int, int]:
    """(the position after a record's headers, how many they are, varints of several bytes among them)."""
    count, position = read_varint(body, position)
    if count < 0 or count > end - position:
        raise RecordMalformed(f"a header count of {count}")
    if count > most:
        raise RecordLimitExceeded(f"a record of {count} headers, of which {most} are taken")
    varints = 0
    for _ in range(count):
        byte = body[position]
        if byte > 127:
            varints += 1
            size, position = read_varint(body, position)
            byte = size << 1 if size >= 0 else 1
        else:
            position += 1
        if byte & 1:
            raise RecordMalformed("a header without a key")
        position += byte >> 1
        byte = body[position]
        if byte > 127:
            varints += 1
            size, position = read_varint(body, position)
            byte = size << 1 if size >= 0 else 1
        else:
            position += 1
        if not byte & 1:
            position += byte >> 1
        if position > end:
            raise RecordMalformed("a header beyond its record")
    return position, count, varints


def _check_run(
    body: bytes | bytearray,
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

    The model ends at start + stride and has the offset delta index - 1; `count` lies within the offsets of its width.
    0 records when there is no run.
    """
    timestamp_width = offset_at - timestamp_at
    offset_width = key_at - offset_at
    run = min(count - index, (len(body) - start) // stride - 1)
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
