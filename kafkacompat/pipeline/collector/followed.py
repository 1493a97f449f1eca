"""One followed file: how far it is read, and how far the broker has acknowledged it. Pure, without input or output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, digest, fingerprint
from kafkacompat.pipeline.collector.lines import Begins, Line, LineCutter, RecordCutter, with_fields
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

Read = Callable[[int, int], bytes]
"""read(offset, length) returns the bytes of one open file at that offset, fewer at its end."""

MAX_CHUNK_LINES: Final = 8192
"""Maximum number of lines per read. Even a short line costs memory, and the client's queue counts lines too."""

MAX_MARKS: Final = 8
"""Number of marks per file. More than one, because a copy is made some reads before the original is truncated."""


class Mark(NamedTuple):
    """A position between two lines, and a digest of the bytes before it."""

    position: int
    digest: str
    """The digest of the CHECK_BYTES before the position, or of fewer at the beginning of the file."""
    fields: bytes = b""
    """The names of the `#Fields` line that is in force there, if there is one (formats/w3c.py)."""


class Saved(NamedTuple):
    """The saved state of one file."""

    identity: str
    device: int
    inode: int
    fingerprint: str
    path: str
    position: int
    """Where to continue: the broker has acknowledged all lines before this offset."""
    marks: tuple[Mark, ...]
    """In ascending order: the position (unless 0) and places before and after it. The last mark identifies the file.
    Empty if nothing was read: then only the fingerprint identifies it. There are MAX_MARKS, and those that `Followed.ended`
    has beside them."""
    left: bool
    """The content is no longer at this device and inode: it was truncated, or has disappeared."""
    sought: bool = False
    """The file must still be searched for among compressed files."""
    fields: bytes = b""
    """The names of the `#Fields` line that is in force at the position."""


class Likeness(NamedTuple):
    """The result of comparing another file's content with a followed file."""

    continues: bool
    """It contains everything that was read, and perhaps more."""
    shared: Mark | None
    """The last position up to which it is the same, among those that the broker has acknowledged."""
    certain: bool
    """CHECK_BYTES bytes at the same place are equal. That is more than two files with the same heading have in common."""


UNLIKE: Final = Likeness(continues=False, shared=None, certain=False)


class Source(Protocol):
    """Whose lines were passed on."""

    def acknowledge(self) -> bool:
        """The broker has acknowledged all lines of a chunk."""


class Chunk:
    """Lines that were passed on together, until the broker has acknowledged all of them."""

    __slots__ = ("end", "file", "missing", "size_bytes")

    def __init__(self, file: Source, end: Mark, lines: int, size_bytes: int) -> None:
        self.file = file
        self.end = end
        self.missing = lines
        self.size_bytes = size_bytes


class Followed:
    """One file from its first line on. `identity` is None until the first line is complete."""

    __slots__ = (
        "_before",
        "chunks",
        "cutter",
        "device",
        "ended",
        "fields",
        "fields_read",
        "fingerprint",
        "given_up_bytes",
        "identity",
        "inode",
        "left",
        "marks",
        "modified_ns",
        "named",
        "path",
        "position",
        "read_s",
        "saved_to",
        "size_bytes",
        "unchecked",
        "unread_at_truncation_bytes",
        "unreadable",
    )

    def __init__(self, device: int, inode: int, path: str) -> None:
        self.device = device
        self.inode = inode
        self.path = path
        """The name under which it was found first, which is in the source of its lines. After a rotation the file in its place has
        the same, so only the identity tells them apart."""
        self.identity: str | None = None
        self.fingerprint: str | None = None
        self.named = True
        """Whether a name leads to it. Without one, it only grows until its writer opens another file."""
        self.left = False
        self.unread_at_truncation_bytes = 0
        self.given_up_bytes = 0
        self.size_bytes = 0
        self.modified_ns = -1
        self.position = 0
        self.saved_to = 0
        self.fields = b""
        """The names of the `#Fields` line that is in force at the position. Those at `cutter.start` are fields_read."""
        self.fields_read = b""
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.ended: dict[int, Mark] = {}
        """By position: where a record was ended because nothing came for a while, beyond the position. All of them are saved:
        the next run must end a record there too. Unacknowledged lines are bounded, and so are these."""
        self.chunks: deque[Chunk] = deque()
        self.cutter: LineCutter | RecordCutter = LineCutter(0)
        self.read_s = float("-inf")
        """When the shell has read it last."""
        self.unchecked = False
        self.unreadable = False
        """Whether the system has refused the shell's last attempt to read it."""
        self._before = b""

    @property
    def scanned(self) -> int:
        """The offset of the next byte to read."""
        return self.cutter.scanned

    @property
    def unread_bytes(self) -> int:
        """The number of bytes that are known to be in the file but are not read."""
        return max(self.size_bytes - self.cutter.scanned, 0)

    @property
    def unacknowledged(self) -> bool:
        return bool(self.chunks)

    @property
    def is_open(self) -> bool:
        """Whether a record of whole lines waits for more of them."""
        return isinstance(self.cutter, RecordCutter) and self.cutter.is_open

    @property
    def pending(self) -> bool:
        """Whether something must still be shipped: bytes that are not read, a record that waits, or lines that are not
        acknowledged."""
        return self.identity is not None and bool(self.unread_bytes or self.chunks or self.is_open)

    def begin(
        self,
        identity: str,
        print_of_head: str,
        max_line_bytes: int,
        position: int = 0,
        marks: tuple[Mark, ...] = (),
        begins: Begins | None = None,
        fields: bytes = b"",
    ) -> None:
        """Set the identity and continue at `position`, if the file has the content of the last mark. begins: the rule that
        puts lines together. fields: of the `#Fields` line that is in force there."""
        self.identity = identity
        self.fingerprint = print_of_head
        self.marks.extend(marks)
        self.ended = {mark.position: mark for mark in marks if mark.position > position}
        self.position = position
        self.fields = self.fields_read = fields
        if begins is None:
            self.cutter = LineCutter(position, max_line_bytes)
        else:
            breaks = frozenset(mark.position for mark in marks)
            self.cutter = RecordCutter(position, max_line_bytes, begins, breaks)
        self.unchecked = bool(marks)

    def unchanged(self, read: Read) -> bool:
        """Whether the bytes that were read last are still there."""
        if self.unchecked:
            end, wanted, _ = self.marks[-1]
            length = min(CHECK_BYTES, end)
            if digest(read(end - length, length)) != wanted:
                return False
            self.unchecked = False
            overlap = min(CHECK_BYTES, self.scanned)
            self._before = read(self.scanned - overlap, overlap)
            return True
        return read(self.scanned - len(self._before), len(self._before)) == self._before

    def is_in(self, read: Read, size_bytes: int) -> bool:
        """Whether the content behind `read`, of this size, is this file's content as it was read."""
        return (
            size_bytes >= self.scanned
            and fingerprint(read(0, HEAD_BYTES)) == self.fingerprint
            and self.unchanged(read)
        )

    def read_on(self, read: Read, most_bytes: int) -> tuple[list[Line], Chunk | None] | None:
        """Return the next lines with their chunk, if there are any. None if the bytes before them have changed.

        At least 1 and at most most_bytes bytes and MAX_CHUNK_LINES lines are read. The bytes before are checked each
        time, so a file that was truncated and rewritten between two reads is detected, however long it has become.
        """
        if self.unchecked and not self.unchanged(read):
            return None
        scanned = self.cutter.scanned
        overlap = len(self._before)
        data = read(scanned - overlap, overlap + max(most_bytes, 1))
        if data[:overlap] != self._before:
            return None
        data = data[: overlap + _end_of_lines(data[overlap:], MAX_CHUNK_LINES)]
        # All is read before anything is cut: what was cut, and not passed on, would be lost by a failure.
        part = scanned - self.cutter.part_bytes
        before_part = _before(read, part) if self.is_open and part < scanned else b""
        lines = self._with_fields(self.cutter.feed(data[overlap:]))
        self._before = data[-CHECK_BYTES:]
        self.size_bytes = max(self.size_bytes, self.cutter.scanned)
        if not lines:
            return lines, None
        end = self.cutter.start
        # The end of the last line, relative to the start of data.
        inside = end - (scanned - overlap)
        if inside >= min(CHECK_BYTES, end):
            before = data[max(inside - CHECK_BYTES, 0) : inside]
        else:
            # The record that waits has begun with a line of which an earlier read had a part.
            before = before_part
        return lines, self._passed_on(lines, Mark(end, digest(before), self.fields_read))

    def finish_record(self, read: Read) -> tuple[list[Line], Chunk | None]:
        """Return the record that waits with its chunk, if there is one."""
        if not isinstance(self.cutter, RecordCutter) or not self.cutter.is_open:
            return [], None
        # Before the record is cut: one that was cut, and not passed on, would be lost by a failure to read.
        before = _before(read, self.scanned - self.cutter.part_bytes)
        lines = self._with_fields(self.cutter.finish())
        end = Mark(self.cutter.start, digest(before), self.fields_read)
        self.ended[end.position] = end
        return lines, self._passed_on(lines, end)

    def _with_fields(self, lines: list[Line]) -> list[Line]:
        """Return the lines with the fields that are in force for each, if there are any."""
        self.fields_read, found = with_fields(lines, self.fields_read)
        return found

    def _passed_on(self, lines: list[Line], end: Mark) -> Chunk:
        chunk = Chunk(self, end, len(lines), sum(len(line.value) for line in lines))
        self.chunks.append(chunk)
        return chunk

    def acknowledge(self) -> bool:
        """Advance the position over the acknowledged chunks at the front. Return whether there were any."""
        moved = False
        while self.chunks and not self.chunks[0].missing:
            self._add_mark(self.chunks.popleft().end)
            moved = True
        return moved

    def _add_mark(self, end: Mark) -> None:
        # Marks beyond the position are from an earlier run. Their lines were read, and perhaps not shipped.
        beyond = [mark for mark in self.marks if mark.position > end.position]
        while self.marks and self.marks[-1].position >= end.position:
            self.marks.pop()
        self.marks.append(end)
        self.marks.extend(beyond)
        self.position = end.position
        self.fields = end.fields
        if self.ended:
            self.ended = {at: mark for at, mark in self.ended.items() if at > end.position}

    def _known(self) -> list[Mark]:
        """Return all marks in ascending order."""
        known = {mark.position: mark for mark in self.marks}
        known.update((chunk.end.position, chunk.end) for chunk in self.chunks)
        return [known[position] for position in sorted(known)]

    def likeness(self, read: Read, size_bytes: int) -> Likeness:
        """Compare the content behind `read`, of this size, with what was read of this file."""
        known = self._known()
        if self.is_open and not self.left:
            # A record that waits has no mark yet.
            known.append(Mark(self.scanned, digest(self._before), self.fields_read))
        found = UNLIKE
        for index in range(len(known) - 1, -1, -1):
            mark = known[index]
            if not 0 < mark.position <= size_bytes:
                continue
            length = min(CHECK_BYTES, mark.position)
            if digest(read(mark.position - length, length)) != mark.digest:
                continue
            if found is UNLIKE:
                certain = mark.position >= CHECK_BYTES
                found = Likeness(continues=index == len(known) - 1, shared=None, certain=certain)
            if mark.position <= self.position:
                return found._replace(shared=mark)
        return found

    @property
    def all_marks(self) -> tuple[Mark, ...]:
        """The marks and the ends of records, for another file that continues this one."""
        return self._with_ended(self.marks)

    def _with_ended(self, marks: Iterable[Mark]) -> tuple[Mark, ...]:
        found = self.ended | {mark.position: mark for mark in marks}
        return tuple(found[position] for position in sorted(found))

    def saved(self) -> Saved | None:
        """Return the state to save. None without an identity."""
        marks = self._with_ended(self._known()[-MAX_MARKS:])
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
            fields=self.fields,
        )


def _before(read: Read, end: int) -> bytes:
    length = min(CHECK_BYTES, end)
    return read(end - length, length)


def _end_of_lines(data: bytes, most: int) -> int:
    """Return the end of line number `most`, or the end of the data if there are fewer lines."""
    if data.count(b"\n") <= most:
        return len(data)
    return len(data) - len(data.split(b"\n", most)[-1])


def restored(saved: Saved, max_line_bytes: int = LINE_BYTES_MAX, begins: Begins | None = None) -> Followed:
    """Return the file as an earlier run saved it."""
    file = Followed(saved.device, saved.inode, saved.path)
    file.begin(
        saved.identity, saved.fingerprint, max_line_bytes, saved.position, saved.marks, begins, saved.fields
    )
    file.left = saved.left
    return file
