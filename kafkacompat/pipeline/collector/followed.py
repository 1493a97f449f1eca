"""One followed file: how far it is read, how far the broker has acknowledged it. Pure; does no input or output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, digest, fingerprint
from kafkacompat.pipeline.collector.lines import MAX_LINE_BYTES, Line, LineCutter

Read = Callable[[int, int], bytes]
"""read(offset, length): the bytes of one open file there; fewer at its end."""

MAX_CHUNK_LINES: Final = 8192
"""Lines read at once: a line costs memory on its way however short it is, and the client's queue counts lines too."""

MAX_MARKS: Final = 8
"""Positions a file is known at. More than one, because a copy is made some reads before the original is truncated."""


class Mark(NamedTuple):
    """A place between two lines, and what stood before it."""

    position: int
    digest: str
    """Of the CHECK_BYTES before it, fewer at the beginning of the file."""


class Saved(NamedTuple):
    """What is kept of a file between two runs."""

    identity: str
    device: int
    inode: int
    fingerprint: str
    path: str
    position: int
    """Where to read on: the broker has acknowledged all lines before."""
    marks: tuple[Mark, ...]
    """Ascending, the position (but 0) and what lay on both sides of it; the last one is what the file is recognised by. None
    while nothing of it was read: then it goes by its fingerprint."""
    left: bool
    """Its content is no longer under device and inode: truncated, or gone from sight."""
    sought: bool = False
    """It is still to be looked for in packed files."""


class Likeness(NamedTuple):
    """How the content of another file compares with a followed one."""

    continues: bool
    """It holds all that was read, and perhaps more."""
    certain: bool
    """A whole CHECK_BYTES is alike, at the same place: more than two files that begin with the same heading."""


UNLIKE: Final = Likeness(continues=False, certain=False)


class Chunk:
    """Lines that were handed over together, until the broker has all of them."""

    __slots__ = ("end", "file", "missing", "size_bytes")

    def __init__(self, file: Followed, end: Mark, lines: int, size_bytes: int) -> None:
        self.file = file
        self.end = end
        self.missing = lines
        self.size_bytes = size_bytes


class Followed:
    """One file, from the first line on. `identity` is None until the first line is there."""

    __slots__ = (
        "_before",
        "chunks",
        "cutter",
        "device",
        "fingerprint",
        "identity",
        "inode",
        "left",
        "marks",
        "modified_ns",
        "path",
        "position",
        "saved_to",
        "size_bytes",
        "unchecked",
    )

    def __init__(self, device: int, inode: int, path: str) -> None:
        self.device = device
        self.inode = inode
        self.path = path
        self.identity: str | None = None
        self.fingerprint: str | None = None
        self.left = False
        self.size_bytes = 0
        self.modified_ns = -1
        self.position = 0
        self.saved_to = 0
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.chunks: deque[Chunk] = deque()
        self.cutter = LineCutter(0)
        self.unchecked = False
        self._before = b""

    @property
    def scanned(self) -> int:
        """Offset of the next byte to read."""
        return self.cutter.scanned

    @property
    def unread_bytes(self) -> int:
        """What was seen in the file and is not read."""
        return max(self.size_bytes - self.cutter.scanned, 0)

    @property
    def unacknowledged(self) -> bool:
        return bool(self.chunks)

    @property
    def pending(self) -> bool:
        """Whether there is more of it to ship: bytes seen and not read, lines that the broker has not acknowledged."""
        return self.identity is not None and bool(self.unread_bytes or self.chunks)

    def begin(
        self,
        identity: str,
        print_of_head: str,
        max_line_bytes: int,
        position: int = 0,
        marks: tuple[Mark, ...] = (),
    ) -> None:
        """Take an identity and read on at position, if the file is found to hold what the last mark says."""
        self.identity = identity
        self.fingerprint = print_of_head
        self.marks.extend(marks)
        self.position = position
        self.cutter = LineCutter(position, max_line_bytes)
        self.unchecked = bool(marks)

    def unchanged(self, read: Read) -> bool:
        """Whether what was read last is still there."""
        if self.unchecked:
            end, wanted = self.marks[-1]
            length = min(CHECK_BYTES, end)
            if digest(read(end - length, length)) != wanted:
                return False
            self.unchecked = False
            overlap = min(CHECK_BYTES, self.scanned)
            self._before = read(self.scanned - overlap, overlap)
            return True
        return read(self.scanned - len(self._before), len(self._before)) == self._before

    def is_in(self, read: Read, size_bytes: int) -> bool:
        """Whether the content behind read, of this size, is this file's as it was read."""
        return (
            size_bytes >= self.scanned
            and fingerprint(read(0, HEAD_BYTES)) == self.fingerprint
            and self.unchanged(read)
        )

    def read_on(self, read: Read, most_bytes: int) -> tuple[list[Line], Chunk | None] | None:
        """The next lines, and their chunk when there are any; None when what stands before is not what was read there.

        At most most_bytes are read, and 1 at least, and no more than MAX_CHUNK_LINES lines. The bytes before are read again each
        time: a file truncated and written anew between two looks is seen, however long it has become.
        """
        if self.unchecked and not self.unchanged(read):
            return None
        scanned = self.cutter.scanned
        overlap = len(self._before)
        data = read(scanned - overlap, overlap + max(most_bytes, 1))
        if data[:overlap] != self._before:
            return None
        data = data[: overlap + _end_of_lines(data[overlap:], MAX_CHUNK_LINES)]
        lines = self.cutter.feed(data[overlap:])
        self._before = data[-CHECK_BYTES:]
        self.size_bytes = max(self.size_bytes, self.cutter.scanned)
        if not lines:
            return lines, None
        end = self.cutter.start
        # Where the last line ends, counted from the beginning of data.
        inside = end - (scanned - overlap)
        mark = Mark(end, digest(data[max(inside - CHECK_BYTES, 0) : inside]))
        chunk = Chunk(self, mark, len(lines), sum(len(line.value) for line in lines))
        self.chunks.append(chunk)
        return lines, chunk

    def acknowledge(self) -> bool:
        """Move on over the chunks at the front whose lines have all arrived; whether there were any."""
        moved = False
        while self.chunks and not self.chunks[0].missing:
            self._add_mark(self.chunks.popleft().end)
            moved = True
        return moved

    def _add_mark(self, end: Mark) -> None:
        # Marks beyond are of an earlier run: seen, planned, and perhaps not shipped.
        beyond = [mark for mark in self.marks if mark.position > end.position]
        while self.marks and self.marks[-1].position >= end.position:
            self.marks.pop()
        self.marks.append(end)
        self.marks.extend(beyond)
        self.position = end.position

    def _known(self) -> list[Mark]:
        """All places it is known at, ascending."""
        known = {mark.position: mark for mark in self.marks}
        known.update((chunk.end.position, chunk.end) for chunk in self.chunks)
        return [known[position] for position in sorted(known)]

    def likeness(self, read: Read, size_bytes: int) -> Likeness:
        """How the content behind read, of this size, compares with what was read of this file."""
        known = self._known()
        for index in range(len(known) - 1, -1, -1):
            position, wanted = known[index]
            if not 0 < position <= size_bytes:
                continue
            length = min(CHECK_BYTES, position)
            if digest(read(position - length, length)) == wanted:
                return Likeness(
                    continues=index == len(known) - 1,
                    certain=position >= CHECK_BYTES,
                )
        return UNLIKE

    def saved(self) -> Saved | None:
        """What to keep; None while it has no identity."""
        marks = tuple(self._known()[-MAX_MARKS:])
        if self.identity is None or self.fingerprint is None:
            return None
        self.saved_to = marks[-1].position if marks else 0
        return Saved(
            self.identity,
            self.device,
            self.inode,
            self.fingerprint,
            self.path,
            self.position,
            marks,
            self.left,
        )


def _end_of_lines(data: bytes, most: int) -> int:
    """Where the last of so many lines ends; the end of the data when there are fewer."""
    if data.count(b"\n") <= most:
        return len(data)
    return len(data) - len(data.split(b"\n", most)[-1])


def restored(saved: Saved, max_line_bytes: int = MAX_LINE_BYTES) -> Followed:
    """The file as an earlier run left it."""
    file = Followed(saved.device, saved.inode, saved.path)
    file.begin(saved.identity, saved.fingerprint, max_line_bytes, saved.position, saved.marks)
    file.left = saved.left
    return file
