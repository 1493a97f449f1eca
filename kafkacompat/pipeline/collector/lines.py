"""Cuts the bytes of a growing file into lines. Pure. It knows positions, but no files and no topics.

A line ends with a newline. A line without one waits. A line longer than the maximum is cut there and its length
recorded, so memory is bounded for any content. By a rule, lines are put together: a stack trace is one record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from kafkacompat.pipeline.formats.w3c import BEGINNING_BYTES as BEGINNING
from kafkacompat.pipeline.formats.w3c import fields_after
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

RECORD_LINES_MAX: Final = 1000
"""Maximum number of lines that are put together. The next one begins a record, whatever it is."""

BEGINNING_BYTES: Final = 1024
"""The bytes of a line with which a rule decides."""

Begins = Callable[[bytes], object]
"""Called with at most BEGINNING_BYTES of a line. What it returns is true if the line begins a record."""


class Line(NamedTuple):
    """One line without its newline."""

    position: int
    """The byte offset of its first byte in the file."""
    value: bytes
    length_bytes: int
    """The length in the file, which is more than len(value) if the line was cut."""
    fields: bytes = b""
    """The names of the `#Fields` line that is in force for it, if there is one (formats/w3c.py)."""


def with_fields(lines: list[Line], before: bytes) -> tuple[bytes, list[Line]]:
    """Return the fields that are in force after these lines of one file, and the lines, each with those that are in force for
    it. before: those before the first line."""
    fields = before
    if not fields and not any(BEGINNING in line.value for line in lines):
        return fields, lines
    found = []
    for line in lines:
        fields = fields_after(line.value, fields)
        found.append(line._replace(fields=fields))
    return fields, found


class LineCutter:
    """The incomplete last line of one file, and its start."""

    __slots__ = ("_beginning", "max_line_bytes", "scanned", "start")

    def __init__(self, start: int, max_line_bytes: int = LINE_BYTES_MAX) -> None:
        """start: the byte offset of the start of a line, where reading continues."""
        self.start = start
        self.scanned = start
        self.max_line_bytes = max_line_bytes
        self._beginning = b""

    @property
    def waiting_bytes(self) -> int:
        """The current length of the line that has no newline yet."""
        return self.scanned - self.start

    @property
    def part_bytes(self) -> int:
        """The length of the line that has no newline yet: the same."""
        return self.waiting_bytes

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that end in data. data begins at `scanned`."""
        if not data:
            return []
        bound = self.max_line_bytes
        last = data.rfind(b"\n")
        if last < 0:
            self._keep(data)
            self.scanned += len(data)
            return []
        lines = []
        position = self.start
        pieces = data[:last].split(b"\n")
        if self.scanned > position:
            length = self.scanned - position + len(pieces[0])
            value = (self._beginning + pieces[0][: bound - len(self._beginning)])[:bound]
            lines.append(Line(position, value, length))
            position += length + 1
            del pieces[0]
        for piece in pieces:
            length = len(piece)
            lines.append(Line(position, piece if length <= bound else piece[:bound], length))
            position += length + 1
        self.start = position
        self._beginning = b""
        self._keep(data[last + 1 :])
        self.scanned += len(data)
        return lines

    def _keep(self, data: bytes) -> None:
        room = self.max_line_bytes - len(self._beginning)
        if room > 0 and data:
            self._beginning += data[:room]


class RecordCutter:
    """Lines that a rule puts together. A record waits until a line begins the next one, or until `finish`.

    It has no more lines and bytes than the maximum. So a rule that fits no line divides the lines, and loses none.
    """

    __slots__ = (
        "_begins",
        "_breaks",
        "_lines",
        "_max_bytes",
        "_parts",
        "_position",
        "_size_bytes",
        "_whole_bytes",
    )

    def __init__(
        self, start: int, max_line_bytes: int, begins: Begins, breaks: Collection[int] = frozenset()
    ) -> None:
        """start: as of LineCutter. breaks: positions where a record begins, because an earlier run has ended one there."""
        self._lines = LineCutter(start, max_line_bytes)
        self._max_bytes = max_line_bytes
        self._begins = begins
        self._breaks = breaks
        self._parts: list[bytes] = []
        self._position = start
        self._size_bytes = 0
        self._whole_bytes = 0

    @property
    def scanned(self) -> int:
        """The offset of the next byte to read."""
        return self._lines.scanned

    @property
    def start(self) -> int:
        """Where to continue: the start of the record that waits, or of the line."""
        return self._position if self._parts else self._lines.start

    @property
    def waiting_bytes(self) -> int:
        """The length of what waits."""
        return self.scanned - self.start

    @property
    def part_bytes(self) -> int:
        """The length of the line that has no newline yet."""
        return self._lines.waiting_bytes

    @property
    def is_open(self) -> bool:
        """Whether a record of whole lines waits."""
        return bool(self._parts)

    def feed(self, data: bytes) -> list[Line]:
        """Return the records that end in data. data begins at `scanned`."""
        records = []
        for line in self._lines.feed(data):
            if self._parts and self._is_first(line):
                records += self.finish()
            if not self._parts:
                self._position, self._size_bytes = line.position, 0
            self._parts.append(line.value)
            self._size_bytes += len(line.value) + 1
            self._whole_bytes = line.position + line.length_bytes - self._position
        return records

    def finish(self) -> list[Line]:
        """Return the record that waits, if there is one. A line that continues it later is a record of its own."""
        if not self._parts:
            return []
        record = Line(self._position, b"\n".join(self._parts), self._whole_bytes)
        self._parts = []
        return [record]

    def _is_first(self, line: Line) -> bool:
        return (
            len(self._parts) >= RECORD_LINES_MAX
            or self._size_bytes + len(line.value) > self._max_bytes
            or line.position in self._breaks
            or bool(self._begins(line.value[:BEGINNING_BYTES]))
        )
