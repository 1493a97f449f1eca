"""The records of an uncompressed body as columns, for compaction, without an object per record.

The records were checked when they were appended. Only what would lead to wrong positions is checked here.
"""

from __future__ import annotations

from itertools import chain
from typing import cast

from kafkacompat.records.record import RecordMalformed, append_varint, read_varint
from kafkacompat.records.scan import (
    END,
    KEY,
    KEY_END,
    NULL_KEYS,
    NULL_VALUES,
    OFFSET,
    START,
    TIMESTAMP,
    VALUE_END,
    column,
    cut,
    scan_whole,
)

AT_ONCE = 16_384
"""Records per call of the compiled scanner. Other threads wait until it returns, some milliseconds."""


class Columns:
    """Columns of a body's `count` records, each a list in record order. Raises RecordMalformed if the records do not
    fill the body exactly."""

    __slots__ = ("_body", "_rows", "has_null_keys", "has_null_values")

    def __init__(self, body: bytes, count: int) -> None:
        pieces = list(scan_whole(body, count, AT_ONCE))
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
    append_varint(inside, delta - by_ms)
    moved = bytearray()
    append_varint(moved, len(inside) + end - rest)
    moved += inside
    return moved, rest
