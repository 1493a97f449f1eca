"""Which file is which, and from where to read it. Pure: decides from names, stat results and bytes that the shell hands in.

Rules, in the order they are tried for a file under (device, inode):
 known, and what stands before the position is unchanged: read on, whatever its name is now;
 known, but shorter or changed before the position: truncated or replaced. The old content is left behind (its position is
   kept), the new one begins at 0 under the next generation of the identity;
 unknown, but its content is that of a file left behind: seen again after it was gone, moved, or the copy of copy-truncate:
   read on there under the old identity, so that lines the original still held are not lost and those shipped keep
   their event ids;
 unknown, and its content is that of a file still followed: a copy whose original is not truncated yet. Wait. If it grows
   by itself, it is a file of its own;
 unknown otherwise: a new file, read from its beginning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from kafkacompat.pipeline.collector.followed import Chunk, Followed, Read, Saved, restored
from kafkacompat.pipeline.collector.identity import CHECK_BYTES, HEAD_BYTES, file_identity, fingerprint
from kafkacompat.pipeline.collector.lines import MAX_LINE_BYTES, Line

MAX_LEFT: Final = 1000
"""Contents left behind that are remembered, the latest ones: how far back a renamed or copied file is recognised."""

SETTLE_LOOKS: Final = 8
"""Looks that a file which begins like another is given to turn out to be its copy."""

MOST_LOOKS: Final = 100
"""The same for one that keeps growing meanwhile, as a large copy does while it is made."""

Key = tuple[int, int]
"""Device and inode."""


class Look(NamedTuple):
    """What stat says of one file."""

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int


class Held(NamedTuple):
    """A copy that is not read as long as it has this size."""

    device: int
    inode: int
    size_bytes: int


class Newcomer:
    """A file that may turn out to be the copy of another; held: it is one, and is not read unless it grows by itself."""

    __slots__ = ("held", "looks", "size_bytes")

    def __init__(self, size_bytes: int, held: bool = False) -> None:
        self.size_bytes = size_bytes
        self.looks = 0
        self.held = held


class Following:
    """All files followed, those left behind, and those about to be judged."""

    def __init__(
        self,
        saved: Iterable[Saved] = (),
        held: Iterable[Held] = (),
        max_line_bytes: int = MAX_LINE_BYTES,
        host: str = "",
    ) -> None:
        """host: this machine's name, part of the identity of files seen from now on; those of `saved` keep theirs."""
        self._max_line_bytes = max_line_bytes
        self._host = host
        self._files: dict[Key, Followed] = {}
        self._left: list[Followed] = []
        self._newcomers: dict[Key, Newcomer] = {}
        self.must_save = False
        """`saved` is to be kept before another line is shipped. Were the file truncated and the collector killed before, lines
        of another content could get the event ids of these: when a file gets its identity or loses it, and until the state
        knows as much of its content as cannot be alike by chance. The shell sets it back."""
        self.truncations = 0
        """Files found shorter than they were read, or changed."""
        self.unread_at_truncation_bytes = 0
        """Bytes that were seen there and not read; a copy that is found makes up for them."""
        self.given_up_bytes = 0
        """Bytes not shipped of files that are gone: what came after their last newline, or could not be read."""
        for device, inode, size_bytes in held:
            self._newcomers[device, inode] = Newcomer(size_bytes, held=True)
        for entry in saved:
            file = restored(entry, max_line_bytes)
            if entry.left:
                self._left.append(file)
            else:
                self._files[entry.device, entry.inode] = file

    def files(self) -> Iterator[Followed]:
        """Every file followed now."""
        return iter(self._files.values())

    def get(self, key: Key) -> Followed | None:
        """The file under this device and inode."""
        return self._files.get(key)

    @property
    def undecided(self) -> int:
        """Files that may be copies and are neither read nor held yet."""
        return sum(not newcomer.held for newcomer in self._newcomers.values())

    def pending(self) -> set[Key]:
        """Files of which lines are to be shipped, or that may yet turn out to have some."""
        undecided = {key for key, newcomer in self._newcomers.items() if not newcomer.held}
        return {key for key, file in self._files.items() if file.pending or key in undecided}

    def forget_held(self, there: Container[Key]) -> None:
        """Copies held by an earlier run that are not there any more."""
        for key in [key for key in self._newcomers if key not in there and key not in self._files]:
            del self._newcomers[key]

    def look(self, look: Look, read: Read) -> Followed | None:
        """The file to read lines from by `lines_of`, or None when there is nothing to read now."""
        key = look.device, look.inode
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = Followed(look.device, look.inode, look.path)
        before_bytes, file.size_bytes = file.size_bytes, look.size_bytes
        before_ns, file.modified_ns = file.modified_ns, look.modified_ns
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
        """The next lines of a file that `look` gave, from most_bytes of it, and their chunk when there are any.

        None and no chunk when the file is found to be truncated or replaced meanwhile; the next look begins it anew.
        """
        answer = file.read_on(read, most_bytes)
        if answer is None:
            look = Look(file.path, file.device, file.inode, file.size_bytes, file.modified_ns)
            self._begin_anew(file, look, file.size_bytes)
            return [], None
        if answer[1] is not None and file.saved_to < CHECK_BYTES:
            self.must_save = True
        return answer

    def resume(self, look: Look, saved: Saved) -> None:
        """Go on with a file of the run before: the shell has found that its content is what it looked at here."""
        self._left = [other for other in self._left if other.identity != saved.identity]
        file = self._files[look.device, look.inode] = Followed(look.device, look.inode, saved.path)
        file.begin(saved.identity, saved.fingerprint, self._max_line_bytes, saved.position, saved.marks)
        file.size_bytes = look.size_bytes
        file.modified_ns = look.modified_ns
        self.must_save = True

    def gone(self, key: Key) -> None:
        """The shell has no way to it any more: no name and no open handle. What is known of it is kept as left behind."""
        newcomer = self._newcomers.pop(key, None)
        file = self._files.pop(key, None)
        if file is not None:
            if newcomer is None or not newcomer.held:
                self.given_up_bytes += file.unread_bytes + file.cutter.waiting_bytes
            self._leave(file)

    def saved(self) -> list[Saved]:
        """What to keep, all acknowledged."""
        entries = [file.saved() for file in (*self._left, *self._files.values())]
        return [entry for entry in entries if entry is not None]

    def held(self) -> list[Held]:
        """Copies that are not read, to keep."""
        return [Held(*key, newcomer.size_bytes) for key, newcomer in self._newcomers.items() if newcomer.held]

    def _begin_anew(self, file: Followed, look: Look, before_bytes: int) -> Followed:
        self.truncations += 1
        self.unread_at_truncation_bytes += max(before_bytes - file.scanned, 0)
        self._leave(file)
        fresh = self._files[look.device, look.inode] = Followed(look.device, look.inode, look.path)
        fresh.path = file.path
        fresh.size_bytes = look.size_bytes
        fresh.modified_ns = look.modified_ns
        return fresh

    def _leave(self, file: Followed) -> None:
        if file.identity is None:
            return
        file.left = True
        self.must_save = True
        if not file.scanned and not file.marks:
            # Nothing was shipped under its identity: there is nothing to go on with.
            return
        self._left.append(file)
        if len(self._left) > MAX_LEFT:
            # Those with lines on their way stay: their position is still to move.
            oldest = next((old for old in self._left if not old.unacknowledged), None)
            if oldest is not None:
                self._left.remove(oldest)

    def _judge(self, file: Followed, look: Look, print_of_head: str, read: Read) -> bool:
        """Give the file its identity and say True, or say False when that has to wait."""
        key = look.device, look.inode
        back = self._seen_again(look, print_of_head, read)
        if back is not None:
            # Until the broker has them, the lines on their way are still to be saved under the old entry.
            if not back.unacknowledged:
                self._take_over(file, back)
            return file.identity is not None
        relatives = [
            other
            for other in (*self._left, *self._files.values())
            if other.fingerprint == print_of_head and (other.device, other.inode) != key
        ]
        if (relatives or key in self._newcomers) and not self._is_its_own(file, look, relatives, read):
            return file.identity is not None
        self._newcomers.pop(key, None)
        used = {other.identity for other in (*self._left, *self._files.values())}
        generation = 0
        while (identity := file_identity(self._host, *key, print_of_head, generation)) in used:
            generation += 1
        file.begin(identity, print_of_head, self._max_line_bytes)
        self.must_save = True
        return True

    def _seen_again(self, look: Look, print_of_head: str, read: Read) -> Followed | None:
        """The file left behind under this very device and inode, if it is the same still: its name, or its folder, was away."""
        for other in reversed(self._left):
            if (other.device, other.inode) != (look.device, look.inode) or other.fingerprint != print_of_head:
                continue
            likeness = other.likeness(read, look.size_bytes)
            untouched = (other.size_bytes, other.modified_ns) == (look.size_bytes, look.modified_ns)
            if likeness.continues and (likeness.certain or untouched):
                return other
        return None

    def _is_its_own(self, file: Followed, look: Look, relatives: list[Followed], read: Read) -> bool:
        """Whether a file that begins like others is none of them. If False it has taken one over, or waits."""
        key = look.device, look.inode
        newcomer = self._newcomers.setdefault(key, Newcomer(look.size_bytes))
        newcomer.looks += 1
        grown = newcomer.size_bytes != look.size_bytes
        newcomer.size_bytes = look.size_bytes
        if newcomer.held and grown:
            return True
        alike = [(other, other.likeness(read, look.size_bytes)) for other in relatives]
        ended = [other for other, likeness in alike if other.left and likeness.continues]
        if ended:
            old = max(ended, key=lambda other: other.scanned)
            # Until the broker has them, the lines on their way are still to be saved under the old entry.
            if not old.unacknowledged:
                self._take_over(file, old)
            return False
        settled = newcomer.looks > SETTLE_LOOKS
        if any(
            likeness.certain and (other.left or look.size_bytes <= other.size_bytes or not settled)
            for other, likeness in alike
        ):
            newcomer.held = True
            return False
        if newcomer.held and not any(likeness.certain for _, likeness in alike):
            # The original has moved on from the places it was known at.
            return False
        return settled and not (grown and newcomer.looks < MOST_LOOKS)

    def _take_over(self, file: Followed, old: Followed) -> None:
        """The file goes on where the one left behind ended, under its identity."""
        assert old.identity is not None
        assert old.fingerprint is not None
        file.path = old.path
        file.begin(old.identity, old.fingerprint, self._max_line_bytes, old.position, tuple(old.marks))
        self._left.remove(old)
        self.must_save = True
        self._newcomers.pop((file.device, file.inode), None)
