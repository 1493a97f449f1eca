"""Files and directories to delete after file.delete.delay.ms.

The queue is for all logs. If the process ends first, the next start recognises these files by their suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, Disk

Doomed = tuple[int, str, bool]
"""(due in monotonic ms, path, whether it is a directory)."""


class DeletionQueue:
    """Paths to delete later. Due times are monotonic, in ms. The queue is bounded by the number of files that exist."""

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
        """Adjust the paths of queued files after their directory was renamed."""
        prefix = source + "/"
        self._items = [
            (due, target + path[len(source) :] if path.startswith(prefix) else path, is_directory)
            for due, path, is_directory in self._items
        ]

    def take_due(self, monotonic_ms: int | None) -> list[Doomed]:
        """Remove and return the items that are due (None: all items), for `remove`."""
        due = [item for item in self._items if monotonic_ms is None or item[0] <= monotonic_ms]
        if due:
            self._items = [
                item for item in self._items if monotonic_ms is not None and item[0] > monotonic_ms
            ]
        return due

    def remove(self, items: Sequence[Doomed]) -> None:
        """Delete the items. Blocks; may run in any thread. A file that cannot be removed is logged and skipped."""
        for _, path, is_directory in items:
            try:
                if is_directory:
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except FileNotFoundError:
                # The partition's directory was deleted before.
                continue
            except OSError as error:
                self._note(f"{path} could not be removed: {error}")
