"""The operations that a simulated machine's disk refuses now, and the errors that it has returned to the current
process.

Each directory of a node is a separate file system: full, read-only, broken, or about to refuse one write. A refused
write changes nothing, as `ports.File` promises for a short write. A broken file system also fails syncs, without
losing the data.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator
from enum import Enum

from kafkacompat.dataclass import dataclass
from kafkacompat.ports import SyncFailed
from kafkacompat.ports.files import CHANGES, SYNCS, WRITES

TOLD_MAX = 100_000
"""More errors than any life gets."""


class Condition(Enum):
    FULL = "full"
    READ_ONLY = "read-only"
    BROKEN = "broken"
    FAILS_A_WRITE = "about to fail a write"
    CUTS_A_WRITE = "about to take a part of a write"
    LOSES_A_SYNC = "one that has lost what a sync was to write"


CODES = {
    Condition.FULL: errno.ENOSPC,
    Condition.READ_ONLY: errno.EROFS,
    Condition.BROKEN: errno.EIO,
    Condition.FAILS_A_WRITE: errno.EIO,
    Condition.CUTS_A_WRITE: errno.ENOSPC,
}
CONCERNED = {
    Condition.FULL: WRITES,
    Condition.READ_ONLY: CHANGES,
    Condition.FAILS_A_WRITE: WRITES,
    Condition.CUTS_A_WRITE: frozenset({"write"}),
}
"""The operations that a condition refuses. A broken file system refuses all."""
OUT_OF_ROOM = (Condition.FULL, Condition.CUTS_A_WRITE)
ONCE = (Condition.FAILS_A_WRITE, Condition.CUTS_A_WRITE)


def directory_of(path: str) -> str:
    """Return the node's directory that contains the path."""
    return "/" + path.split("/", 2)[1]


@dataclass(frozen=True, slots=True)
class Told:
    error: OSError
    directory: str
    condition: Condition
    at_us: int
    log: str | None = None
    """The directory of the log whose append was refused."""


class Refusals:
    """The refusals of one machine. Call `meet` before every operation of its process."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.conditions: dict[str, Condition] = {}
        """The conditions of directories that are not healthy."""
        self.told: list[Told] = []
        """The errors that the current or last process got."""

    def process_starts(self) -> None:
        self.told.clear()

    def meet(self, operation: str, path: str) -> None:
        """Raise OSError if the operation is refused."""
        if not self.conditions:
            return
        directory = directory_of(path)
        condition = self.conditions.get(directory)
        if condition is None or operation not in CONCERNED.get(condition, (operation,)):
            return
        if condition in ONCE:
            del self.conditions[directory]
        kind = SyncFailed if operation in SYNCS else OSError
        error = kind(CODES[condition], f"{operation} refused: the disk is {condition.value}", path)
        log = posixpath.dirname(path) if operation == "write" and path.endswith(".log") else None
        self._note(Told(error, directory, condition, self._now_us(), log))
        raise error

    def sync_failed(self, failure: OSError, path: str) -> None:
        self._note(Told(failure, directory_of(path), Condition.LOSES_A_SYNC, self._now_us()))

    def _note(self, told: Told) -> None:
        if len(self.told) < TOLD_MAX:
            self.told.append(told)

    def behind(self, error: BaseException) -> Told | None:
        """Return the disk's error that caused this exception, if any."""
        for each in chain(error):
            for told in self.told:
                if told.error is each:
                    return told
        return None

    def has_failed(self, directory: str) -> bool:
        """Whether the current process got an error that makes this directory fail."""
        return any(each.directory == directory for each in self.told)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes."""
    while error is not None:
        yield error
        error = error.__cause__
