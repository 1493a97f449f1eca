"""Syncing one log's files, apart from the log itself, because it blocks and belongs in a worker thread.

Duty: fsync what it was given. Must not know: what changed meanwhile; the log compares when it takes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports import Disk, File


class LogFlush:
    """The files to sync for one log; `run` is for a worker thread and touches nothing else."""

    __slots__ = ("_disk", "_files", "_paths", "end_offset", "truncations")

    def __init__(
        self, disk: Disk, files: list[File], paths: list[str], end_offset: int, truncations: int
    ) -> None:
        """`truncations` of the log so far."""
        self._disk = disk
        self._files = files
        self._paths = paths
        self.end_offset = end_offset
        self.truncations = truncations

    def run(self) -> None:
        for file in self._files:
            file.sync()
        for path in self._paths:
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                # Dropped by retention or truncation since the flush began.
                continue
            file.sync()
            file.close()
