"""Decides which file is which, and where to continue. Pure: the shell passes in names, stat results and bytes.

The rules for a file at (device, inode), in order:
- Known, and the bytes before the position are unchanged: continue, whatever its name is now.
- Known, but shorter or changed before the position: truncated or replaced. The old content is left behind (its
  position is kept). The new content starts at 0 with the next generation of the identity.
- Unknown, but with the content of a file that was left behind: the file has reappeared, was moved, or is the copy of
  copy-truncate. Continue under the old identity. Lines that only the original had are then not lost, and lines that
  were shipped keep their event ids.
- Unknown, with the content of a file that has lost its name: the file was replaced by a copy of itself (`sed -i`,
  rsync). Continue under the old identity when all lines of the old file are shipped.
- Unknown, with the content of a file that is still followed: a copy whose original is not truncated yet. Wait. If it
  grows independently, it is a separate file. What the original has shipped is not read from it again.
- Unknown otherwise: a new file. Read it from its beginning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from kafkacompat.pipeline.collector.followed import Chunk, Followed, Mark, Read, Saved, restored
from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, file_identity, fingerprint
from kafkacompat.pipeline.collector.lines import Begins, Line
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

MAX_LEFT: Final = 1000
"""Maximum number of contents left behind that are remembered, newest first. Older ones are not recognised after a
rename or copy."""

SETTLE_LOOKS: Final = 8
"""The number of looks after which a file that begins like another is no longer expected to be its copy."""

MOST_LOOKS: Final = 100
"""The same for a file that keeps growing, as a large copy does while it is made."""

Key = tuple[int, int]
"""Device and inode."""


class Look(NamedTuple):
    """The stat result of one file."""

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    named: bool = True
    """Whether it was found by its name, and not only because it is still open."""


class Held(NamedTuple):
    """A copy that is not read while it has this size."""

    device: int
    inode: int
    size_bytes: int


class Newcomer:
    """A file that may turn out to be a copy. held: it is a copy, and is not read unless it grows independently.
    shared: what the original has shipped of it, if that is certain. It is not read again. waits: it continues the original, as
    soon as the original is shipped."""

    __slots__ = ("held", "looks", "shared", "size_bytes", "waits")

    def __init__(self, size_bytes: int, held: bool = False, shared: Mark | None = None) -> None:
        self.size_bytes = size_bytes
        self.shared = shared
        self.looks = 0
        self.held = held
        self.waits = False


class Following:
    """All followed files, those left behind, and those not identified yet."""

    def __init__(
        self,
        saved: Iterable[Saved] = (),
        held: Iterable[Held] = (),
        max_line_bytes: int = LINE_BYTES_MAX,
        host: str = "",
        begins: Begins | None = None,
    ) -> None:
        """host: this machine's name, part of the identity of new files. The files in `saved` keep their identity. begins: the
        rule that puts lines together."""
        self._begins = begins
        self._max_line_bytes = max_line_bytes
        self._host = host
        self._files: dict[Key, Followed] = {}
        self._left: list[Followed] = []
        self._unread: dict[str, Followed] = {}
        """By fingerprint: files that were lost before anything was read. A copy is then a file like any other, but its
        bytes are not lost. At most MAX_LEFT."""
        self._newcomers: dict[Key, Newcomer] = {}
        self.must_save = False
        """True if `saved` must be stored before another line is shipped. The shell resets it.

        It is set when a file gets or loses its identity, until the saved state has enough of the content to exclude
        equality by chance. Otherwise, if the file were truncated and the collector killed, lines of other content
        could get the same event ids.
        """
        self.truncations = 0
        """Files that became shorter than they were read, or changed."""
        self.unread_at_truncation_bytes = 0
        """Bytes that were seen before a truncation but not read, without those that a copy has. They are read from it."""
        self.given_up_bytes = 0
        """Bytes of vanished files that were not shipped: those after the last newline, and those that could not be
        read. Without those of files that were found again."""
        for device, inode, size_bytes in held:
            self._newcomers[device, inode] = Newcomer(size_bytes, held=True)
        for entry in saved:
            file = restored(entry, max_line_bytes, begins)
            if entry.left:
                self._left.append(file)
            else:
                self._files[entry.device, entry.inode] = file

    def files(self) -> Iterator[Followed]:
        """Return every followed file."""
        return iter(self._files.values())

    def get(self, key: Key) -> Followed | None:
        """Return the file at this device and inode."""
        return self._files.get(key)

    @property
    def undecided(self) -> int:
        """The number of files that may be copies and are neither read nor held yet."""
        return sum(not newcomer.held for newcomer in self._newcomers.values())

    def pending(self) -> set[Key]:
        """The files with lines to ship, or that may turn out to have some."""
        undecided = {key for key, newcomer in self._newcomers.items() if newcomer.waits or not newcomer.held}
        return {key for key, file in self._files.items() if file.pending or key in undecided}

    def forget_held(self, there: Container[Key]) -> None:
        """Forget copies held by an earlier run that no longer exist."""
        for key in [key for key in self._newcomers if key not in there and key not in self._files]:
            del self._newcomers[key]

    def look(self, look: Look, read: Read) -> Followed | None:
        """Return the file whose lines `lines_of` can read. None if there is nothing to read now."""
        key = look.device, look.inode
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = Followed(look.device, look.inode, look.path)
        before_bytes, file.size_bytes = file.size_bytes, look.size_bytes
        before_ns, file.modified_ns = file.modified_ns, look.modified_ns
        file.named = look.named
        if file.identity is not None:
            if look.size_bytes == file.scanned and look.modified_ns == before_ns:
                return None
            if look.size_bytes >= file.scanned and fingerprint(read(0, HEAD_BYTES)) == file.fingerprint:
                if look.size_bytes > file.scanned:
                    return file
                if file.unchanged(read):
                    return None
            file = self._begin_anew(file, look, before_bytes)
        print_of_head = fingerprint(read(0, HEAD_BYTES))
        if print_of_head is None or not self._judge(file, look, print_of_head, read):
            return None
        return file

    def lines_of(self, file: Followed, read: Read, most_bytes: int) -> tuple[list[Line], Chunk | None]:
        """Read at most most_bytes of a file that `look` returned. Return its next lines, and their chunk if there are
        any.

        If the file turns out to be truncated or replaced, there are no lines and no chunk. The next look starts it
        again.
        """
        answer = file.read_on(read, most_bytes)
        if answer is None:
            look = Look(file.path, file.device, file.inode, file.size_bytes, file.modified_ns)
            self._begin_anew(file, look, file.size_bytes)
            return [], None
        if answer[1] is not None and file.saved_to < CHECK_BYTES:
            self.must_save = True
        return answer

    def finish_record(self, file: Followed, read: Read) -> tuple[list[Line], Chunk | None]:
        """Return the record that waits in a file that does not grow, with its chunk.

        Its end is saved before it is shipped. Otherwise, after a crash, a line that continues it would come with it under its
        event id, and the line would be taken for a copy.
        """
        lines, chunk = file.finish_record(read)
        self.must_save = self.must_save or chunk is not None
        return lines, chunk

    def _begin(
        self,
        file: Followed,
        identity: str,
        print_of_head: str,
        position: int = 0,
        marks: tuple[Mark, ...] = (),
        fields: bytes = b"",
    ) -> None:
        file.begin(identity, print_of_head, self._max_line_bytes, position, marks, self._begins, fields)

    def resume(self, look: Look, saved: Saved) -> None:
        """Continue a file of the previous run. The shell has checked that its content is the same."""
        for other in self._left:
            if other.identity == saved.identity:
                self._found_again(other, look.size_bytes)
        self._left = [other for other in self._left if other.identity != saved.identity]
        file = self._files[look.device, look.inode] = Followed(look.device, look.inode, saved.path)
        self._begin(file, saved.identity, saved.fingerprint, saved.position, saved.marks, saved.fields)
        file.size_bytes = look.size_bytes
        file.modified_ns = look.modified_ns
        self.must_save = True

    def gone(self, key: Key) -> None:
        """The file has neither a name nor an open handle any more. Keep its state as left behind."""
        newcomer = self._newcomers.pop(key, None)
        file = self._files.pop(key, None)
        if file is not None:
            if newcomer is None or not newcomer.held:
                shipped = (
                    newcomer.shared.position if newcomer is not None and newcomer.shared is not None else 0
                )
                file.given_up_bytes = max(file.unread_bytes + file.cutter.waiting_bytes - shipped, 0)
                self.given_up_bytes += file.given_up_bytes
            self._leave(file)

    def saved(self) -> list[Saved]:
        """Return the state to save. It covers acknowledged lines only."""
        entries = [file.saved() for file in (*self._left, *self._files.values())]
        return [entry for entry in entries if entry is not None]

    def held(self) -> list[Held]:
        """Return the copies that are not read, to save them."""
        return [Held(*key, newcomer.size_bytes) for key, newcomer in self._newcomers.items() if newcomer.held]

    def _begin_anew(self, file: Followed, look: Look, before_bytes: int) -> Followed:
        self.truncations += 1
        waiting_bytes = file.cutter.waiting_bytes if file.is_open else 0
        file.unread_at_truncation_bytes = max(before_bytes - file.scanned, 0) + waiting_bytes
        self.unread_at_truncation_bytes += file.unread_at_truncation_bytes
        self._leave(file)
        fresh = self._files[look.device, look.inode] = Followed(look.device, look.inode, look.path)
        fresh.path = file.path
        fresh.named = file.named
        fresh.size_bytes = look.size_bytes
        fresh.modified_ns = look.modified_ns
        return fresh

    def _leave(self, file: Followed) -> None:
        if file.identity is None:
            return
        file.left = True
        self.must_save = True
        if not file.marks and not file.chunks and (file.is_open or not file.scanned):
            # Nothing was shipped under its identity, so there is nothing to continue.
            if file.fingerprint is not None:
                self._unread[file.fingerprint] = file
            if len(self._unread) > MAX_LEFT:
                del self._unread[next(iter(self._unread))]
            return
        self._left.append(file)
        if len(self._left) > MAX_LEFT:
            # Files with unacknowledged lines stay, because their position will still advance.
            oldest = next((old for old in self._left if not old.unacknowledged), None)
            if oldest is not None:
                self._left.remove(oldest)

    def _judge(self, file: Followed, look: Look, print_of_head: str, read: Read) -> bool:
        """Identify the file and return True, or return False if that must wait."""
        key = look.device, look.inode
        back = self._seen_again(look, print_of_head, read)
        if back is not None:
            # Wait until the broker has acknowledged all lines, because they are saved under the old entry.
            if not back.unacknowledged:
                self._take_over(file, back, look.size_bytes)
            return file.identity is not None
        relatives = [
            other
            for other in (*self._left, *self._files.values())
            if other.fingerprint == print_of_head and (other.device, other.inode) != key
        ]
        if (relatives or key in self._newcomers) and not self._is_its_own(file, look, relatives, read):
            return file.identity is not None
        newcomer = self._newcomers.pop(key, None)
        shared = newcomer.shared if newcomer is not None else None
        used = {other.identity for other in (*self._left, *self._files.values())}
        generation = 0
        while (identity := file_identity(self._host, *key, print_of_head, generation)) in used:
            generation += 1
        if shared is None:
            self._begin(file, identity, print_of_head)
        else:
            self._begin(file, identity, print_of_head, shared.position, (shared,), shared.fields)
        self.must_save = True
        unread = self._unread.get(print_of_head)
        if unread is not None and (unread.device, unread.inode) != key:
            self._found_again(self._unread.pop(print_of_head), look.size_bytes)
        return look.size_bytes > file.scanned

    def _seen_again(self, look: Look, print_of_head: str, read: Read) -> Followed | None:
        """Return the file left behind at the same device and inode, if it is still the same. Its name or folder was
        missing for a while."""
        for other in reversed(self._left):
            if (other.device, other.inode) != (look.device, look.inode) or other.fingerprint != print_of_head:
                continue
            likeness = other.likeness(read, look.size_bytes)
            untouched = (other.size_bytes, other.modified_ns) == (look.size_bytes, look.modified_ns)
            if likeness.continues and (likeness.certain or untouched):
                return other
        return None

    def _is_its_own(self, file: Followed, look: Look, relatives: list[Followed], read: Read) -> bool:
        """Return whether a file that begins like others is a new one. Otherwise it has continued one of them, or waits."""
        key = look.device, look.inode
        newcomer = self._newcomers.setdefault(key, Newcomer(look.size_bytes))
        newcomer.looks += 1
        grown = newcomer.size_bytes != look.size_bytes
        newcomer.size_bytes = look.size_bytes
        alike = [(other, other.likeness(read, look.size_bytes)) for other in relatives]
        ended = [
            other
            for other, likeness in alike
            if likeness.continues
            and (other.left or (not other.named and (look.named or look.size_bytes > other.scanned)))
        ]
        if ended:
            old = max(ended, key=lambda other: other.scanned)
            # Wait until the broker has acknowledged all lines, because they are saved under the old entry. What is
            # still to be read of a file without a name is read there, because the copy may differ.
            newcomer.waits = True
            if not old.unacknowledged and (old.left or not (old.unread_bytes or old.is_open)):
                self._take_over(file, old, look.size_bytes)
            return False
        newcomer.waits = False
        if any(
            not other.named
            and (not (other.scanned or other.unreadable) or (likeness.continues and not look.named))
            for other, likeness in alike
            if not other.left
        ):
            # The other one is not read yet. Or both have lost their name, and this one has nothing more: it continues the other
            # as soon as that is given up.
            return False
        for _, likeness in alike:
            mark = likeness.shared if likeness.certain else None
            if mark is not None and (newcomer.shared is None or mark.position > newcomer.shared.position):
                newcomer.shared = mark
        more = newcomer.shared is not None and look.size_bytes > newcomer.shared.position
        # A file that was put in the place of another one, with other lines at its end, is no copy.
        replaces = any(
            likeness.certain
            and other.path == look.path
            and (other.left or not (other.named or other.unread_bytes))
            and not other.unacknowledged
            for other, likeness in alike
        )
        if newcomer.held and (grown or (replaces and more)):
            return True
        settled = newcomer.looks > SETTLE_LOOKS
        if any(
            likeness.certain and (other.left or look.size_bytes <= other.size_bytes or not settled)
            for other, likeness in alike
        ):
            newcomer.held = True
            return False
        if newcomer.held and not any(likeness.certain for _, likeness in alike):
            # The original has moved past its known marks.
            return False
        return settled and not (grown and newcomer.looks < MOST_LOOKS)

    def _take_over(self, file: Followed, old: Followed, size_bytes: int) -> None:
        """Continue a file that was left behind, or has lost its name, under its identity. The file has this size."""
        assert old.identity is not None
        assert old.fingerprint is not None
        file.path = old.path
        self._begin(file, old.identity, old.fingerprint, old.position, old.all_marks, old.fields)
        if old.left:
            self._left.remove(old)
            self._found_again(old, size_bytes)
        else:
            # Its writer may still have it open. What it writes there gets an identity of its own.
            key = old.device, old.inode
            rest = self._files[key] = Followed(*key, old.path)
            rest.named, rest.size_bytes, rest.modified_ns = False, old.size_bytes, old.modified_ns
            shared = next((mark for mark in old.marks if mark.position == old.position), None)
            self._newcomers[key] = Newcomer(old.size_bytes, held=True, shared=shared)
        self.must_save = True
        self._newcomers.pop((file.device, file.inode), None)

    def _found_again(self, old: Followed, size_bytes: int) -> None:
        """No longer count the bytes of a file that was left behind as lost: another file of this size has its content."""
        there = max(size_bytes - old.scanned, 0)
        waiting_bytes = old.cutter.waiting_bytes if old.is_open else 0
        self.unread_at_truncation_bytes -= min(old.unread_at_truncation_bytes, there + waiting_bytes)
        self.given_up_bytes -= min(old.given_up_bytes, there + old.cutter.waiting_bytes)
