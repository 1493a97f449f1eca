"""The collector's loop: look, read, ship, save. One thread. The producer's callbacks run inside its own calls.

The state is saved only after the broker has acknowledged the lines that it covers. While the broker is away, a bounded
amount is in flight and the loop waits (back-pressure): the lines stay in the files, and nothing is dropped. The loop waits
too while it cannot save the state on which the event ids of new files rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kafkacompat.pipeline.collector.disk import Disk
from kafkacompat.pipeline.collector.followed import Chunk, Followed, Saved
from kafkacompat.pipeline.collector.following import Following, Key, Look
from kafkacompat.pipeline.collector.lines import Begins, Line
from kafkacompat.pipeline.collector.packed import UnpackingStopped, beginnings, unpacked
from kafkacompat.pipeline.collector.saved_state import StateUnreadable, decode, encode
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed

SCAN_INTERVAL_S: Final = 0.25
SAVE_INTERVAL_S: Final = 1.0
READ_BYTES: Final = 256 * 1024
"""Bytes read from one file before the next file's turn."""

STOP_TIMEOUT_S: Final = 5.0
RECORD_WAIT_S: Final = 5.0
"""For how long a record waits for lines that continue it. Writers flush whole stack traces, or line after line."""


class Figures(NamedTuple):
    """The collector's figures. They are sums since its start, except for the lag and the amount in flight. No field has a default,
    so that files and streams each give it."""

    files: int
    lines: int
    """Acknowledged lines."""
    bytes: int
    lag_bytes: int
    """Bytes that are in the files but not read."""
    on_the_way_bytes: int
    cut_lines: int
    resent_lines: int
    truncations: int
    unfinished_bytes: int
    """Bytes after the last newline of each file."""
    unread_at_truncation_bytes: int
    """Bytes that were seen before a truncation but not read. If a copy is found, they are read from it."""
    given_up_bytes: int
    """Bytes of vanished files that were not shipped."""
    refused_files: int
    beyond_files: int
    """Files held open beyond the maximum, because of lines that are not shipped."""
    trouble: str | None
    lost_files: int
    """Files that the previous run began and that were not found again, either as they were or compressed."""


class Stream(Protocol):
    """A source that is read in order: standard input, or the journal."""

    @property
    def has_ended(self) -> bool: ...
    def turn(self, timeout_s: float, now_s: float) -> bool: ...
    def figures(self) -> Figures: ...


def ship_stream(
    stream: Stream, shipper: Shipper, stopping: Callable[[], bool], tell: Callable[[Figures], None]
) -> None:
    """Run until stopping() is true, or until everything is shipped."""
    while not stopping() and not (stream.has_ended and not shipper.on_the_way_bytes):
        moved = stream.turn(0.0 if shipper.on_the_way_bytes else SCAN_INTERVAL_S, time.monotonic())
        tell(stream.figures())
        shipper.turn(0.0 if moved and shipper.room else SCAN_INTERVAL_S / 2)


def stream_figures(shipper: Shipper, unfinished_bytes: int, trouble: str | None) -> Figures:
    """Return the figures of a stream since the start."""
    return Figures(
        files=1,
        lines=shipper.acknowledged_lines,
        bytes=shipper.acknowledged_bytes,
        lag_bytes=0,
        on_the_way_bytes=shipper.on_the_way_bytes,
        cut_lines=shipper.cut_lines,
        resent_lines=shipper.resent_lines,
        truncations=0,
        unfinished_bytes=unfinished_bytes,
        unread_at_truncation_bytes=0,
        given_up_bytes=0,
        refused_files=0,
        beyond_files=0,
        trouble=shipper.trouble or trouble,
        lost_files=0,
    )


class Collector:
    """One run with one state directory."""

    def __init__(
        self,
        disk: Disk,
        state: StateFile,
        shipper: Shipper,
        host: str = "",
        begins: Begins | None = None,
    ) -> None:
        """host: this machine's name. begins: the rule that puts lines together. Raises PipelineFailed if the state was not
        written by a collector."""
        self._disk = disk
        self._state = state
        self._shipper = shipper
        text = state.load()
        try:
            saved, held = decode(text) if text is not None else ([], [])
        except StateUnreadable as error:
            raise PipelineFailed(f"{state.path} is not the state of a collector: {error}") from None
        # A file that was left behind without marks has nothing to compare with.
        compared = [entry for entry in saved if entry.marks or not entry.left]
        self._following = Following(compared, held, host=host, begins=begins)
        self._earlier = {(entry.device, entry.inode): entry for entry in saved if not entry.left}
        self._unfound = [
            entry for entry in saved if not entry.left or entry.sought or entry.position < _known(entry)
        ]
        """Files of the previous run that may have been compressed since. Empty after the search."""
        self._put_off: list[Saved] = []
        """Those that could not be decompressed now."""
        self._lost_files = 0
        self._looks: dict[Key, Look] = {}
        self._next: Key | None = None
        """The file with which the next turn begins: the first one for which the last turn had no room."""
        self._scanned_s = float("-inf")
        self._saved_s = float("-inf")
        self._saved_lines = 0
        self._has_saved = text is not None
        self._unsaved: str | None = None
        """Why the state could not be saved."""
        self._unshipped: list[tuple[Chunk, list[Line], str, str]] = []
        """What was read and waits for the state to be saved, with the identity and the path of its file."""
        self._scans = 0

    def run(self, stopping: Callable[[], bool], tell: Callable[[Figures], None], until_end: bool) -> None:
        """Run until stopping() is true or, with until_end, until everything is shipped. `tell` is called after each turn."""
        while not stopping():
            moved = self.turn(time.monotonic(), stopping)
            tell(self.figures())
            if until_end and not moved and self._all_shipped():
                break
            self._shipper.turn(0.0 if moved and self._shipper.room else SCAN_INTERVAL_S / 2)
        self._shipper.flush(STOP_TIMEOUT_S)
        self._save(time.monotonic())
        tell(self.figures())

    def turn(self, now_s: float, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Do one round over the files. Return whether anything was read. Long operations end when stopping() is true."""
        if now_s - self._scanned_s >= SCAN_INTERVAL_S:
            self._scan(now_s, stopping)
        moved = False
        if self._unshipped:
            self._ship_read(now_s)
        for look in self._from_next():
            if self._unshipped or not self._shipper.room:
                self._next = look.device, look.inode
                break
            file = self._following.get((look.device, look.inode))
            if file is not None and file.identity is not None and file.unread_bytes:
                moved = self._read(file, look, now_s) or moved
            elif file is not None and file.is_open and now_s - file.read_s >= RECORD_WAIT_S:
                self._finish_record(file, look, now_s)
                moved = True
        if self._following.must_save:
            self._ship_read(now_s)
        elif (
            now_s - self._saved_s >= SAVE_INTERVAL_S and self._saved_lines != self._shipper.acknowledged_lines
        ):
            self._save_or_later(now_s)
        return moved

    def _from_next(self) -> list[Look]:
        """Return all files, those before the next one last. From the first file on each time, one that grows as fast as the
        broker takes lines would leave no room for others."""
        keys, looks = list(self._looks), list(self._looks.values())
        at = keys.index(self._next) if self._next in self._looks else 0
        return looks[at:] + looks[:at]

    def figures(self) -> Figures:
        files = list(self._following.files())
        shipper = self._shipper
        return Figures(
            len(files),
            shipper.acknowledged_lines,
            shipper.acknowledged_bytes,
            sum(file.unread_bytes for file in files),
            shipper.on_the_way_bytes,
            shipper.cut_lines,
            shipper.resent_lines,
            self._following.truncations,
            sum(file.cutter.waiting_bytes for file in files),
            self._following.unread_at_truncation_bytes,
            self._following.given_up_bytes,
            self._disk.refused,
            self._disk.beyond,
            shipper.trouble
            or self._unsaved
            or next((f"{path}: {why}" for path, why in self._disk.troubles.items()), None),
            self._lost_files,
        )

    def _scan(self, now_s: float, stopping: Callable[[], bool]) -> None:
        self._scanned_s = now_s
        self._scans += 1
        looks, gone = self._disk.scan(now_s, self._following.pending(), self._earlier)
        for key in gone:
            self._following.gone(key)
        if self._earlier:
            looks += self._find_earlier(now_s)
        self._looks = {(look.device, look.inode): look for look in looks}
        if self._scans == 1:
            self._following.forget_held(self._looks)
        # A file that has lost its name comes before the copy that has taken its place: its lines are the original's.
        for look in sorted(looks, key=lambda look: look.named):
            try:
                self._following.look(look, self._disk.reader(look))
            except OSError as error:
                self._disk.troubles[look.path] = error.strerror or str(error)
        if self._unfound and not self._following.undecided and all(map(self._disk.holds, self._earlier)):
            self._look_into_packed(now_s, stopping)

    def _look_into_packed(self, now_s: float, stopping: Callable[[], bool]) -> None:
        """Search the compressed files for files of the previous run that were not found, by their content."""
        missing = self._missing()
        self._unfound = []
        packed, unread = beginnings(self._disk.packed_beside(entry.path for entry in missing))
        self._disk.troubles.update(unread)
        for entry in missing:
            try:
                found = unpacked(entry, packed, self._state.folder, stopping)
            except UnpackingStopped:
                self._put_off.append(entry)
                continue
            except OSError as error:
                self._disk.troubles[error.filename or entry.path] = error.strerror or str(error)
                found = None
                if error.errno is not None:
                    # The file may be intact: the disk is full, or too many files are open. The next run searches
                    # again.
                    self._put_off.append(entry)
            if found is None:
                if unread and entry not in self._put_off:
                    # It may be in a file that could not be read now.
                    self._put_off.append(entry)
                self._lost_files += entry.sought or not entry.left
                continue
            descriptor, path = found
            del packed[path]
            look = self._disk.take_in(descriptor, entry.path, now_s)
            self._looks[look.device, look.inode] = look
            self._following.resume(look, entry)

    def _missing(self) -> list[Saved]:
        """Return the files of the previous run that are not followed again yet."""
        followed = {file.identity for file in self._following.files()}
        return [entry for entry in (*self._unfound, *self._put_off) if entry.identity not in followed]

    def _find_earlier(self, now_s: float) -> list[Look]:
        """Find files of the previous run that no pattern matches. Those that cannot be examined now are searched for
        again later."""
        self._earlier = {key: saved for key, saved in self._earlier.items() if not self._disk.holds(key)}
        found = []
        for key, look in self._disk.find_renamed(self._earlier.values(), now_s).items():
            file = self._following.get(key)
            try:
                if (
                    look is not None
                    and file is not None
                    and file.is_in(self._disk.reader(look), look.size_bytes)
                ):
                    found.append(look)
                    continue
            except OSError as error:
                self._disk.give_up(key)
                self._disk.troubles[self._earlier[key].path] = error.strerror or str(error)
                continue
            if look is not None:
                self._disk.give_up(key)
            self._following.gone(key)
            del self._earlier[key]
        return found

    def _read(self, file: Followed, look: Look, now_s: float) -> bool:
        try:
            lines, chunk = self._following.lines_of(file, self._disk.reader(look), READ_BYTES)
        except OSError as error:
            file.unreadable = True
            self._disk.troubles[look.path] = error.strerror or str(error)
            return False
        file.read_s, file.unreadable = now_s, False
        if chunk is not None and file.identity is not None:
            self._unshipped.append((chunk, lines, file.identity, file.path))
        self._ship_read(now_s)
        return not file.left

    def _finish_record(self, file: Followed, look: Look, now_s: float) -> None:
        try:
            lines, chunk = self._following.finish_record(file, self._disk.reader(look))
        except OSError as error:
            self._disk.troubles[look.path] = error.strerror or str(error)
            # It is tried again after the next scan. Until then the loop may rest.
            file.read_s = now_s - RECORD_WAIT_S + SCAN_INTERVAL_S
            return
        if chunk is not None and file.identity is not None:
            self._unshipped.append((chunk, lines, file.identity, file.path))
        self._ship_read(now_s)

    def _ship_read(self, now_s: float) -> None:
        """Ship what was read, unless the state must be saved before and cannot be."""
        if self._following.must_save and not self._save_or_later(now_s):
            return
        for chunk, lines, identity, path in self._unshipped:
            self._shipper.ship(chunk, lines, identity, path)
        self._unshipped.clear()

    def _all_shipped(self) -> bool:
        files = list(self._following.files())
        return (
            self._scans > 1
            and not (self._unfound and all(map(self._disk.holds, self._earlier)))
            and not self._following.undecided
            and not self._unshipped
            and self._shipper.on_the_way_bytes == 0
            and not any(file.unread_bytes or file.is_open for file in files if file.identity is not None)
        )

    def _save_or_later(self, now_s: float) -> bool:
        """Save, and return whether that was possible. Until it is, the next run would send the acknowledged lines again, with
        the same event ids. A first run whose state cannot be saved ends: its directory is probably wrong."""
        if self._unsaved is not None and now_s - self._saved_s < SAVE_INTERVAL_S:
            return False
        try:
            self._save(now_s)
        except PipelineFailed as failure:
            if self._following.must_save and not self._has_saved:
                raise
            self._unsaved = str(failure)
            self._saved_s, self._saved_lines = now_s, -1
            return False
        return True

    def _save(self, now_s: float) -> None:
        self._saved_lines = self._shipper.acknowledged_lines
        # If this run ends first, the next run must also search for them among compressed files.
        sought = [entry._replace(left=True, sought=True) for entry in self._missing()]
        others = {entry.identity for entry in sought}
        saved = [entry for entry in self._following.saved() if entry.identity not in others]
        self._state.save(encode(saved + sought, self._following.held()))
        self._following.must_save = False
        self._saved_s = now_s
        self._has_saved = True
        self._unsaved = None


def _known(entry: Saved) -> int:
    """Return how far the previous run had read the file. Bytes after the position were in flight."""
    return entry.marks[-1].position if entry.marks else 0
