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
    """What is wrong with a file system, and all that follows from it."""

    FULL = "full", errno.ENOSPC, WRITES, 2
    READ_ONLY = "read-only", errno.EROFS, CHANGES, 1
    BROKEN = "broken", errno.EIO, None, 1
    FAILS_A_WRITE = "about to fail a write", errno.EIO, WRITES, 1, True
    CUTS_A_WRITE = "about to take a part of a write", errno.ENOSPC, frozenset({"write"}), 1, True
    LOSES_A_SYNC = "one that has lost what a sync was to write", errno.EIO, frozenset[str](), 0

    def __init__(
        self, title: str, code: int, refuses: frozenset[str] | None, weight: int, is_once: bool = False
    ) -> None:
        self.title = title
        self.code = code
        self.refuses = refuses
        """Operations of disks. None: all."""
        self.weight = weight
        """How often it is drawn, beside the others."""
        self.is_once = is_once
        """Whether it passes with the first refusal."""


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
        if condition is None or (condition.refuses is not None and operation not in condition.refuses):
            return
        if condition.is_once:
            del self.conditions[directory]
        kind = SyncFailed if operation in SYNCS else OSError
        error = kind(condition.code, f"{operation} refused: the disk is {condition.title}", path)
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
