"""Records as lines on standard output: which fields a line has, and in which form."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import TypeAlias

from kafkacompat.cli.output import Progress
from kafkacompat.cli.reader import Records
from kafkacompat.failure import CommandFailed
from kafkacompat.records.record import Headers, Record

FIELDS = ("offset", "partition", "timestamp", "key", "headers", "value")
Line: TypeAlias = Callable[[int, int, Record], bytes]


class Lines:
    """Prints lines on standard output, and the progress if that goes elsewhere."""

    def __init__(self, source: str) -> None:
        self.count = self._size = 0
        self._progress = Progress(f"from {source}") if not sys.stdout.isatty() else None

    def print_lines(self, lines: list[bytes], size: int) -> None:
        """Print the lines of records, whose values have that size. They have left this process when this returns."""
        if lines:
            out = sys.stdout.buffer
            out.write(b"".join(lines))
            out.flush()
        self.count += len(lines)
        self._size += size
        if self._progress is not None:
            self._progress.update(self.count, self._size)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress.finish(self.count, self._size)


class Printing(Lines):
    """Prints records as lines, up to a maximum number."""

    def __init__(self, topic: str, line: Line, most: int | None) -> None:
        super().__init__(topic)
        self._line = line
        self._most = most

    @property
    def is_done(self) -> bool:
        return self._most is not None and self.count >= self._most

    def show(self, partition: int, records: Records) -> Records:
        """Print records and return those that were printed."""
        if self._most is not None:
            records = records[: self._most - self.count]
        lines = [self._line(partition, offset, record) for offset, record in records]
        self.print_lines(lines, sum([len(record.value or b"") for _, record in records]))
        return records


def renderer(fields: list[str], separator: bytes) -> Line:
    """Return a function of (partition, offset, record) that gives a line with these fields. CommandFailed for an unknown field."""
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise CommandFailed(f"--print takes {', '.join(FIELDS)}, not {', '.join(map(repr, unknown))}")
    if fields == ["value"]:
        return lambda partition, offset, record: (NULL if record.value is None else record.value) + b"\n"
    parts = [PARTS[field] for field in fields]

    def line(partition: int, offset: int, record: Record) -> bytes:
        return separator.join([part(partition, offset, record) for part in parts]) + b"\n"

    return line


def time_text(timestamp_ms: int) -> str:
    """Return ISO 8601 in UTC, the number if the calendar does not reach that far, or null for a record without a timestamp."""
    if timestamp_ms < 0:
        return "null"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat("T", "milliseconds")


def headers_text(headers: Headers) -> bytes:
    return b",".join([name.encode() + b"=" + (NULL if value is None else value) for name, value in headers])


NULL = b"null"
PARTS: dict[str, Line] = {
    "offset": lambda partition, offset, record: str(offset).encode(),
    "partition": lambda partition, offset, record: str(partition).encode(),
    "timestamp": lambda partition, offset, record: time_text(record.timestamp_ms).encode(),
    "key": lambda partition, offset, record: NULL if record.key is None else record.key,
    "headers": lambda partition, offset, record: headers_text(record.headers),
    "value": lambda partition, offset, record: NULL if record.value is None else record.value,
}
