"""Files and directories that are to go once their delay is over (file.delete.delay.ms).

Duty: remember and remove. Must not know: whose they were. What is still here when the process ends is found again at the next
start by its suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, Disk

Doomed = tuple[int, str, bool]
"""(due, path, is a directory)."""


class DeletionQueue:
    """Delays in ms of the clock's monotonic time. Bounded by the files that exist."""

    __slots__ = ("_clock", "_disk", "_items", "_note")

    def __init__(self, disk: Disk, clock: Clock, note: Callable[[str], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._note = note
        self._items: list[Doomed] = []

    def add_files(self, paths: Sequence[str], delay_ms: int) -> None:
        due = self._clock.monotonic_ms() + delay_ms
        self._items += [(due, path, False) for path in paths]

    def add_directory(self, path: str, delay_ms: int) -> None:
        self._items.append((self._clock.monotonic_ms() + delay_ms, path, True))

    def follow(self, source: str, target: str) -> None:
        """A directory was renamed, and what is to go lies in it."""
        prefix = source + "/"
        self._items = [
            (due, target + path[len(source) :] if path.startswith(prefix) else path, is_directory)
            for due, path, is_directory in self._items
        ]

    def take_due(self, monotonic_ms: int | None) -> list[Doomed]:
        """What is due (None: everything), to be given to `remove`."""
        due = [item for item in self._items if monotonic_ms is None or item[0] <= monotonic_ms]
        if due:
            self._items = [
                item for item in self._items if monotonic_ms is not None and item[0] > monotonic_ms
            ]
        return due

    def remove(self, items: Sequence[Doomed]) -> None:
        """Blocks; may run in any thread. A file that cannot be removed is noted and given up."""
        for _, path, is_directory in items:
            try:
                if is_directory:
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except FileNotFoundError:
                # Its partition's directory was deleted before.
                continue
            except OSError as error:
                self._note(f"{path} could not be removed: {error}")
