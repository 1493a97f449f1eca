"""Cuts the bytes of a growing file into lines. Pure. It knows positions, but no files and no topics.

A line ends with a newline. A line without one waits. A line longer than the maximum is cut there and its length
recorded, so memory is bounded for any content.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.pipeline.topics import LINE_BYTES_MAX


class Line(NamedTuple):
    """One line without its newline."""

    position: int
    """The byte offset of its first byte in the file."""
    value: bytes
    length_bytes: int
    """The length in the file, which is more than len(value) if the line was cut."""


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
