"""The only reader of the records in a batch of magic 2: their grammar, in two implementations, and rows of field
positions.

A record is: length, attributes, timestamp delta, offset delta, key, value, headers. Numbers and lengths are zigzag
varints, and a negative length is null. All readers of records call `scan`: validation only for its result, the cleaner
for columns (`Columns`), lookups, replay and dumps for records (`walk_records`).

The compiled implementation (_scan.c) takes about 0.02 us per record, the Python one half a microsecond. A build
without a compiler has only the latter. The compiled one accepts valid records only and reports no errors: it stops
before an invalid record, and the Python one then raises the error. Tests hold both equal.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

from kafkacompat.compiled import require_switched_on
from kafkacompat.records.limits import RecordLimitExceeded
from kafkacompat.records.record import (
    Headers,
    Record,
    RecordMalformed,
    append_varint,
    as_long,
    read_varint,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

try:
    require_switched_on()
    from kafkacompat.records import _scan

    _ = _scan.find
except (ImportError, AttributeError):  # it was not compiled, or from older source text
    _scan = None  # type: ignore[assignment]
IS_COMPILED = _scan is not None


START, TIMESTAMP, OFFSET, KEY, KEY_END, VALUE, VALUE_END, END, FIELDS = range(9)
"""The fields of a row. Positions count from the first byte of the data. START is the position of the record's length
prefix. The end of a null key or value is -1. Headers begin at the end of the value or, if it is null, at VALUE."""
NULL_KEYS, NULL_VALUES = 1, 2
ANY_OFFSET = -1
HEADERS_UNSEEN = -1
ALL_HEADERS = ALL_AT_ONCE = 1 << 62
VARINT_UNITS = 3
ROWS_AT_ONCE = 256
"""Rows made per call for records that are read one by one."""

Scanned: TypeAlias = "tuple[int, int, int, int, int, int, int, Buffer | None]"
"""(position after the last record, number of records, units of work, headers, least (at most 0) and greatest timestamp
delta in ms, NULL_KEYS and NULL_VALUES flags, the rows)."""


def scan(
    data: Buffer,
    position: int,
    end: int,
    first_offset: int,
    most: int,
    units: int,
    headers_a_record: int,
    with_rows: bool,
) -> Scanned:
    """Read records from a position on: at most `most`, until `units` of work are done (about half a microsecond each).

    Offset deltas must count up from `first_offset`, unless that is ANY_OFFSET. With HEADERS_UNSEEN nothing after the
    values is read. The scan stops before an invalid record. If the first record is invalid, it raises RecordMalformed,
    or RecordLimitExceeded for more headers than `headers_a_record`.
    """
    if _scan is not None:
        found = _scan.scan(data, position, end, first_offset, most, units, headers_a_record, with_rows)
        if found[1]:
            return found
    return scan_in_python(data, position, end, first_offset, most, units, headers_a_record, with_rows)


def scan_in_python(
    data: Buffer,
    position: int,
    end: int,
    first_offset: int,
    most: int,
    units: int,
    headers_a_record: int,
    with_rows: bool,
) -> Scanned:
    """`scan` without the compiled extension."""
    done = nulls = headers = least = 0
    greatest = -(1 << 63)
    rows = array("q") if with_rows else None
    left = units
    try:
        while done < most and left > 0:
            byte = data[position]
            at = position + 1
            if byte > 127:
                second = data[at]
                at += 1
                if second > 127:
                    size, at = read_varint(data, position)
                    left -= VARINT_UNITS
                else:
                    size = (byte & 127 | second << 7) >> 1
                    if byte & 1:
                        size = -1
            else:
                size = -1 if byte & 1 else byte >> 1
            if size < 0 or size > end - at:
                raise RecordMalformed(f"a record of {size} bytes where {end - at} remain")
            stop = at + size
            at += 1
            timestamp = data[at]
            if timestamp > 127:
                timestamp, at = read_varint(data, at, 64)
                left -= VARINT_UNITS
            else:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
                at += 1
            offset = data[at]
            at += 1
            if offset > 127:
                second = data[at]
                at += 1
                if second > 127 or offset & 1:
                    third = data[at]
                    if second > 127 and third < 128 and not offset & 1:
                        # Most offset deltas of a batch with a million records have this length.
                        offset = (offset & 127 | (second & 127) << 7 | third << 14) >> 1
                        at += 1
                    else:
                        offset, at = read_varint(data, at - 2)
                        left -= VARINT_UNITS
                else:
                    offset = (offset & 127 | second << 7) >> 1
            else:
                offset = (offset >> 1) ^ -(offset & 1)
            if first_offset >= 0 and offset != first_offset + done:
                raise RecordMalformed(f"offset delta {offset} in the place of {first_offset + done}")
            size = data[at]
            if size > 127:
                size, at = read_varint(data, at)
                left -= VARINT_UNITS
            else:
                size = -1 if size & 1 else size >> 1
                at += 1
            key = at
            key_end = -1
            if size >= 0:
                at = key_end = key + size
            size = data[at]
            at += 1
            if size > 127:
                second = data[at]
                at += 1
                if second > 127:
                    size, at = read_varint(data, at - 2)
                    left -= VARINT_UNITS
                else:
                    size = -1 if size & 1 else (size & 127 | second << 7) >> 1
            else:
                size = -1 if size & 1 else size >> 1
            value = at
            value_end = -1
            if size >= 0:
                at = value_end = value + size
            found = 0
            if headers_a_record >= 0:
                if data[at]:
                    found, varints, at = _skip_headers(data, at, stop, headers_a_record)
                    left -= found + varints * VARINT_UNITS
                else:
                    at += 1
                if at != stop:
                    raise RecordMalformed(f"a record's parts end at {at}, its length at {stop}")
            elif at > stop:
                raise RecordMalformed(f"a record's parts end at {at}, its length at {stop}")
            if rows is not None:
                rows.extend((position, timestamp, offset, key, key_end, value, value_end, stop))
            if timestamp < least:
                least = timestamp
            if timestamp > greatest:
                greatest = timestamp
            if key_end < 0:
                nulls |= NULL_KEYS
            if value_end < 0:
                nulls |= NULL_VALUES
            headers += found
            position = stop
            done += 1
            left -= 1
    except IndexError:
        if not done:
            raise RecordMalformed("the body ends within a record") from None
    except (RecordMalformed, RecordLimitExceeded):
        if not done:
            raise
    return (
        position,
        done,
        units - left,
        headers,
        least,
        greatest,
        nulls,
        None if rows is None else memoryview(rows),
    )


def _skip_headers(data: Buffer, position: int, end: int, most: int) -> tuple[int, int, int]:
    """(number of a record's headers, number of varints of several bytes among them, position after them)."""
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise RecordMalformed(f"a header count of {count}")
    if count > most:
        raise RecordLimitExceeded(f"a record of {count} headers, of which {most} are taken")
    varints = 0
    for _ in range(count):
        byte = data[position]
        if byte > 127:
            varints += 1
            size, position = read_varint(data, position)
            byte = size << 1 if size >= 0 else 1
        else:
            position += 1
        if byte & 1:
            raise RecordMalformed("a header without a key")
        position += byte >> 1
        byte = data[position]
        if byte > 127:
            varints += 1
            size, position = read_varint(data, position)
            byte = size << 1 if size >= 0 else 1
        else:
            position += 1
        if not byte & 1:
            position += byte >> 1
        if position > end:
            raise RecordMalformed("a header beyond its record")
    return count, varints, position


def find(
    data: Buffer, position: int, end: int, most: int, timestamp: int, offset: int
) -> tuple[int, int, tuple[int, int] | None]:
    """Look for the first record whose timestamp and offset delta are not below the given ones, among at most `most`
    from a position on.

    Returns the position after the last record looked at, the number of those, and (timestamp delta, offset delta) of
    the record if it is found. It stops before an invalid record. If the first record is invalid, it raises
    RecordMalformed. Nothing after the values is read. Other threads run while the compiled one looks.
    """
    if _scan is not None:
        found = _scan.find(data, position, end, most, timestamp, offset)
        if found[1]:
            return found
    return find_in_python(data, position, end, most, timestamp, offset)


def find_in_python(
    data: Buffer, position: int, end: int, most: int, timestamp: int, offset: int
) -> tuple[int, int, tuple[int, int] | None]:
    """`find` without the compiled extension."""
    looked_at = 0
    while looked_at < most:
        count = min(most - looked_at, ROWS_AT_ONCE)
        try:
            after, found, *_, rows = scan_in_python(
                data, position, end, ANY_OFFSET, count, ALL_AT_ONCE, HEADERS_UNSEEN, True
            )
        except RecordMalformed:
            if looked_at:
                break
            raise
        assert rows is not None
        for at, each in enumerate(zip(column(rows, TIMESTAMP), column(rows, OFFSET), strict=True)):
            if each[0] >= timestamp and each[1] >= offset:
                return column(rows, END)[at], looked_at + at + 1, each
        position = after
        looked_at += found
        if found < count:
            break
    return position, looked_at, None


def column(rows: Buffer, field: int) -> list[int]:
    return memoryview(rows).cast("B").cast("q")[field::FIELDS].tolist()


def cut(data: bytes | bytearray, rows: Buffer, first: int, last: int) -> list[bytes | None]:
    """The bytes between two fields of each row. None if the last field is -1."""
    if _scan is not None:
        return _scan.cut(data, rows, first, last)
    return cut_in_python(data, rows, first, last)


def cut_in_python(data: bytes | bytearray, rows: Buffer, first: int, last: int) -> list[bytes | None]:
    """`cut` without the compiled extension."""
    places = zip(column(rows, first), column(rows, last), strict=True)
    return [bytes(data[at:end]) if end >= 0 else None for at, end in places]


def scan_whole(data: bytes | bytearray, count: int, at_once: int) -> Iterator[tuple[Buffer, int]]:
    """(rows, NULL_KEYS and NULL_VALUES flags) of `at_once` records at a time, for a body that must consist of exactly
    `count` records.

    Raises RecordMalformed otherwise. Nothing after the values is read.
    """
    position, end = 0, len(data)
    while count > 0:
        most = min(count, at_once)
        position, found, *_, nulls, rows = scan(
            data, position, end, ANY_OFFSET, most, ALL_AT_ONCE, HEADERS_UNSEEN, True
        )
        assert rows is not None
        yield rows, nulls
        count -= found
    if position != end:
        raise RecordMalformed(f"{end - position} bytes after the last record")


def walk_records(
    data: bytes | bytearray, count: int, base_timestamp_ms: int, headers_most: int = ALL_HEADERS
) -> Iterator[Record]:
    """The `count` records of an uncompressed body, created one by one. Raises RecordMalformed if they do not fill it
    exactly.

    At most `headers_most` headers of a record are created. One more entry tells how many follow; those are not parsed.
    With 0 nothing after the value is read.
    """
    # A slice of a bytearray would be copied twice.
    source = data if isinstance(data, bytes) else memoryview(data)
    for rows, _ in scan_whole(data, count, ROWS_AT_ONCE):
        fields = iter(memoryview(rows).cast("B").cast("q"))
        for _, timestamp, offset, key, key_end, value, value_end, stop in zip(
            *[fields] * FIELDS, strict=True
        ):
            yield Record(
                offset,
                base_timestamp_ms + timestamp,
                bytes(source[key:key_end]) if key_end >= 0 else None,
                bytes(source[value:value_end]) if value_end >= 0 else None,
                _headers(data, max(value, value_end), stop, headers_most) if headers_most else (),
            )


def _headers(data: bytes | bytearray, position: int, end: int, most: int) -> Headers:
    """The headers of a record that ends at `end`."""
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise RecordMalformed(f"a header count of {count}")
    made: list[tuple[str, bytes | None]] = []
    for _ in range(min(count, most)):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise RecordMalformed("a header without a key")
        value, position = _read_bytes(data, position, end)
        made.append((name.decode("utf-8", "replace"), value))
    if count > most:
        return (*made, (f"({count - most} more)", None))
    if position != end:
        raise RecordMalformed(f"a record's parts end {end - position} bytes before its length says")
    return tuple(made)


def _read_bytes(data: bytes | bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    if size > end - position:
        raise RecordMalformed(f"{size} bytes where {end - position} remain in the record")
    return bytes(data[position : position + size]), position + size


COLUMNS_AT_ONCE = 16_384
"""Records per call of the compiled scanner. Other threads wait until it returns, some milliseconds."""


class Columns:
    """The records of an uncompressed body as columns, each a list in record order, for compaction, without an object per record.

    The records were checked when they were appended. Only what would lead to wrong positions is checked here."""

    __slots__ = ("_body", "_rows", "has_null_keys", "has_null_values")

    def __init__(self, body: bytes, count: int) -> None:
        """Raises RecordMalformed if the `count` records do not fill the body exactly."""
        pieces = list(scan_whole(body, count, COLUMNS_AT_ONCE))
        self._body = body
        self._rows = [rows for rows, _ in pieces]
        self.has_null_keys = any(nulls & NULL_KEYS for _, nulls in pieces)
        self.has_null_values = any(nulls & NULL_VALUES for _, nulls in pieces)

    def keys(self) -> list[bytes | None]:
        return self._cut(KEY, KEY_END)

    def records(self) -> list[bytes]:
        """The records with their length prefix."""
        return cast("list[bytes]", self._cut(START, END))

    def timestamp_deltas(self) -> list[int]:
        """Timestamp deltas in ms."""
        return self._column(TIMESTAMP)

    def offset_deltas(self) -> list[int]:
        deltas = self._column(OFFSET)
        if min(deltas) < 0:
            raise RecordMalformed("a negative offset delta")
        return deltas

    def null_values(self) -> list[int]:
        """Indexes of the records with a null value, ascending."""
        if not self.has_null_values:
            return []
        return [at for at, end in enumerate(self._column(VALUE_END)) if end < 0]

    def _column(self, field: int) -> list[int]:
        return list(chain.from_iterable(column(rows, field) for rows in self._rows))

    def _cut(self, first: int, last: int) -> list[bytes | None]:
        return list(chain.from_iterable(cut(self._body, rows, first, last) for rows in self._rows))


def shifted(record: bytes, by_ms: int) -> bytes:
    """A record, with its length prefix, whose timestamp delta is lowered by `by_ms`."""
    head, rest = shifted_head(record, 0, len(record), by_ms)
    return bytes(head + record[rest:])


def shifted_head(body: bytes | bytearray, start: int, end: int, by_ms: int) -> tuple[bytearray, int]:
    """The beginning of the record at `start`, with its timestamp delta lowered by `by_ms`, and where the rest begins,
    which does not change."""
    at = start
    while body[at] > 127:
        at += 1
    delta, rest = read_varint(body, at + 2, 64)
    inside = bytearray(body[at + 1 : at + 2])
    append_varint(inside, as_long(delta - by_ms))
    moved = bytearray()
    append_varint(moved, len(inside) + end - rest)
    moved += inside
    return moved, rest
