"""Cuts the bytes of a growing file into lines. Pure; knows positions, no files and no topics.

A line ends with its newline; what has none yet waits. A line longer than the bound is cut there and its length kept, so
memory stays bounded whatever a file holds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_LINE_BYTES: Final = 512 * 1024
"""Longer lines are cut. Below `max.message.bytes` (1 MiB), so that a broker with default settings takes every line."""


class Line(NamedTuple):
    """One line without its newline."""

    position: int
    """Byte offset of its first byte in the file."""
    value: bytes
    length_bytes: int
    """As it stands in the file; more than len(value) when it was cut."""


class LineCutter:
    """The unfinished last line of one file, and where it began."""

    __slots__ = ("_beginning", "max_line_bytes", "scanned", "start")

    def __init__(self, start: int, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """start: byte offset where a line begins; reading goes on there."""
        self.start = start
        self.scanned = start
        self.max_line_bytes = max_line_bytes
        self._beginning = b""

    @property
    def waiting_bytes(self) -> int:
        """Length so far of the line that has no newline yet."""
        return self.scanned - self.start

    def feed(self, data: bytes) -> list[Line]:
        """The lines that end in data, which begins at `scanned`."""
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
