"""The journal of systemd as a source of lines: `journalctl` gives entries as JSON, and the state is the cursor of an entry.

Only what the broker has acknowledged is behind the cursor. An entry that comes again has the event id that it had before: its
number in its journal. While the broker is away nothing is read, so journalctl waits.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import IO, Any, Final, NamedTuple

from kafkacompat.pipeline.collector.followed import Chunk, Mark
from kafkacompat.pipeline.collector.lines import Line, LineCutter
from kafkacompat.pipeline.collector.running import (
    READ_BYTES,
    SAVE_INTERVAL_S,
    STOP_TIMEOUT_S,
    Figures,
    ship_stream,
    stream_figures,
)
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

PREFIX: Final = "journal:"
"""Before a match of journalctl in place of a file's name. Alone it stands for all entries."""

PROGRAM: Final = "journalctl"
VERSION: Final = 1
ENTRY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The JSON of an entry: a message that is not text has up to four characters for each byte."""

UNIT_CHARACTERS_MAX: Final = 256
START_AGAIN_S: Final = 1.0
SAID_BYTES_MAX: Final = 400
NAMES: Final = ("_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "_TRANSPORT")
"""The fields that name the source of an entry: the first one that it has."""

_PLACE: Final = re.compile(r"s=([0-9a-f]{1,32});i=([0-9a-f]{1,16});[!-~]{0,400}")
_CURSOR: Final = re.compile(rb'"__CURSOR"\s*:\s*"([^"\\]*)"')
"""Where an entry is, also in text that was cut. In a message these quotes have a backslash before them."""


class Entry(NamedTuple):
    """An entry of the journal: where it is, and its message. value: None if it has none."""

    cursor: str
    journal: str
    number: int
    unit: str
    value: bytes | None
    length_bytes: int


def entry_of(text: bytes, length_bytes: int) -> Entry | None:
    """Parse an entry. None if it is none. A text that is shorter than length_bytes was cut: its message is lost."""
    told: Any = {}
    if length_bytes != len(text):
        cut = _CURSOR.search(text)
        cursor = "" if cut is None else cut[1].decode("ascii", "replace")
    else:
        try:
            told = json.loads(text)
            cursor = str(told["__CURSOR"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
    place = _PLACE.fullmatch(cursor)
    if place is None:
        return None
    journal, number = place[1], int(place[2], 16)
    if length_bytes != len(text):
        return Entry(cursor, journal, number, "", b"", length_bytes)
    names = (_bytes(told.get(name)) for name in NAMES)
    unit = next((name for name in names if name), b"").decode("utf-8", "replace")[:UNIT_CHARACTERS_MAX]
    value = _bytes(told.get("MESSAGE"))
    if value is None:
        return Entry(cursor, journal, number, unit, None, 0)
    return Entry(cursor, journal, number, unit, value[:LINE_BYTES_MAX], len(value))


def _bytes(value: Any) -> bytes | None:
    """Return a field: text, a list of bytes if it is not UTF-8, or a list of these if the entry has it several times."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if not isinstance(value, list):
        return None
    if all(isinstance(each, int) and 0 <= each < 256 for each in value):
        return bytes(value)
    return b"\n".join(_bytes(each) or b"" for each in value)


def encode(cursor: str) -> str:
    """Return the text of the state."""
    return json.dumps({"version": VERSION, "journal": {"cursor": cursor}}, indent=1)


def decode(text: str) -> str:
    """Return the cursor of a state. ValueError if it is none."""
    try:
        told = json.loads(text)
        cursor = told["journal"]["cursor"]
        if told["version"] == VERSION and isinstance(cursor, str):
            return cursor
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError("it is not that of a collector of the journal")


def words_of(matches: Sequence[str], cursor: str | None, *, until_end: bool) -> list[str]:
    """Return the command. The entry of the cursor comes first, if it is still there: not all versions of journalctl know
    how to begin after one that is gone."""
    words = [PROGRAM, "--output=json", "--all", "--quiet", "--no-pager", "--no-tail"]
    words.append(f"--output-fields={','.join(('MESSAGE', *NAMES))}")
    if not until_end:
        words.append("--follow")
    if cursor is not None:
        words.append(f"--cursor={cursor}")
    return [*words, "--", *matches] if matches else words


class Journal:
    """One run with one state directory."""

    def __init__(
        self, shipper: Shipper, state: StateFile, matches: Sequence[str] = (), *, until_end: bool = False
    ) -> None:
        """matches: as journalctl has them. PipelineFailed if the state was written by a collector of files."""
        self._shipper = shipper
        self._state = state
        self._matches = matches
        self._until_end = until_end
        text = state.load()
        try:
            self._cursor = None if text is None else decode(text)
        except ValueError as error:
            raise PipelineFailed(f"{state.path} cannot be used: {error}") from None
        self._saved = self._acknowledged = self._cursor
        self._on_the_way: deque[tuple[Chunk, str]] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._cutter = LineCutter(0, ENTRY_BYTES_MAX)
        self._start_s = float("-inf")
        self._saved_s = float("-inf")
        self._has_read = False
        self._has_worked = False
        """Whether a process did what it was asked. What another one lacks then, such as memory, is a matter of time."""
        self.has_ended = False
        self._trouble: str | None = None

    def run(self, stopping: Callable[[], bool], tell: Callable[[Figures], None]) -> None:
        """Run until stopping() is true, or until everything is shipped. PipelineFailed if journalctl cannot be started."""
        try:
            ship_stream(self, self._shipper, stopping, tell)
            self._shipper.flush(STOP_TIMEOUT_S)
            self._save(time.monotonic())
            tell(self.figures())
        finally:
            self._end()

    def turn(self, timeout_s: float, now_s: float) -> bool:
        """Read and ship what there is, waiting for it at most timeout_s. Return whether anything was read."""
        if now_s - self._saved_s >= SAVE_INTERVAL_S:
            try:
                self._save(now_s)
            except PipelineFailed as failure:
                # It passes. What is not saved comes again in the next run, with the same event ids.
                self._trouble = str(failure)
        if self.has_ended or not self._shipper.room:
            return False
        if self._process is None:
            if now_s < self._start_s:
                time.sleep(min(timeout_s, self._start_s - now_s))
                return False
            try:
                self._process = self._begin()
            except PipelineFailed as failure:
                if not self._has_worked:
                    raise
                self._start_later(str(failure), now_s)
                return False
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return False
        data = os.read(self._process.stdout.fileno(), READ_BYTES)
        if not data:
            self._look_at_end(now_s)
            return False
        self._ship([entry for line in self._cutter.feed(data) if (entry := self._entry(line)) is not None])
        return True

    def figures(self) -> Figures:
        """Return the figures since the start."""
        return stream_figures(self._shipper, self._cutter.waiting_bytes, self._trouble)

    def acknowledge(self) -> bool:
        """The broker has acknowledged a chunk. The cursor moves over those before which none is missing."""
        while self._on_the_way and not self._on_the_way[0][0].missing:
            _, self._acknowledged = self._on_the_way.popleft()
        return True

    def _entry(self, line: Line) -> Entry | None:
        entry = entry_of(line.value, line.length_bytes)
        if entry is None:
            self._trouble = f"{PROGRAM} has written what is no entry of a journal"
            return None
        before, self._cursor = self._cursor, entry.cursor
        # The entry with which it begins was read by the run or the process before.
        is_known = not self._has_read and before is not None and _place(before) == _place(entry.cursor)
        self._has_read = True
        return None if is_known else entry

    def _ship(self, entries: list[Entry]) -> None:
        def source(entry: Entry) -> tuple[str, str, bool]:
            return entry.journal, entry.unit, entry.value is None

        for (journal, unit, is_empty), found in groupby(entries, source):
            group = list(found)
            lines = [
                Line(entry.number, entry.value, entry.length_bytes)
                for entry in group
                if entry.value is not None
            ]
            chunk = Chunk(
                self, Mark(group[-1].number, ""), len(lines), sum(len(line.value) for line in lines)
            )
            self._on_the_way.append((chunk, group[-1].cursor))
            if not is_empty:
                self._shipper.ship(chunk, lines, f"journal-{journal}", f"/journal/{unit}")
        self.acknowledge()

    def _begin(self) -> subprocess.Popen[bytes]:
        self._cutter = LineCutter(0, ENTRY_BYTES_MAX)
        self._has_read = False
        words = words_of(self._matches, self._cursor, until_end=self._until_end)
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
            # In a session of its own, so that Ctrl-C reaches the collector alone.
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            raise PipelineFailed(f"{PROGRAM} cannot be started: {error.strerror}") from None

    def _look_at_end(self, now_s: float) -> None:
        """The process has ended. It is started again, unless it was to end, or the first one cannot do what it is asked."""
        assert self._process is not None
        assert self._errors is not None
        self._errors.seek(0)
        said = self._errors.read(SAID_BYTES_MAX).decode(errors="replace").strip().partition("\n")[0]
        status = self._process.wait()
        self._end()
        if status == 0 and self._until_end:
            self.has_ended = True
            return
        why = f"{PROGRAM} has ended with status {status}: {said or 'it said nothing'}"
        if status > 0 and not self._has_read and not self._has_worked:
            raise PipelineFailed(why)
        self._has_worked = True
        self._start_later(why, now_s)

    def _start_later(self, why: str, now_s: float) -> None:
        self._end()
        self._trouble = f"{why}; it is started again"
        self._start_s = now_s + START_AGAIN_S

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _save(self, now_s: float) -> None:
        self._saved_s = now_s
        if self._acknowledged is not None and self._acknowledged != self._saved:
            self._state.save(encode(self._acknowledged))
            self._saved = self._acknowledged


def _place(cursor: str) -> list[str]:
    """Return the journal and the number in a cursor."""
    return cursor.split(";")[:2]
