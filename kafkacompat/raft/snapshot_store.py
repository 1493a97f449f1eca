"""The snapshots beside the metadata log: found at a start, frozen, served in pieces, fetched in pieces, deleted.

File names, and `.part` for an incomplete fetch, are Kafka's (KIP-630).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.snapshot import (
    SnapshotContent,
    parse_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer, Disk, File

PART_SUFFIX = ".part"


class SnapshotStore:
    """The snapshots of one `__cluster_metadata-0`. Raises OSError."""

    __slots__ = ("_disk", "_part", "directory")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._part: File | None = None

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        return posixpath.join(self.directory, snapshot_file_name(*snapshot_id))

    def found(self) -> list[OffsetAndEpoch]:
        """Ascending ids."""
        names = self._disk.list_directory(self.directory)
        parsed = [each for name in names if (each := parse_snapshot_name(name)) is not None]
        return sorted(OffsetAndEpoch(*each) for each in parsed)

    def drop_parts(self) -> None:
        """Delete the part files of interrupted fetches."""
        for name in self._disk.list_directory(self.directory):
            if name.endswith(PART_SUFFIX) and parse_snapshot_name(name.removesuffix(PART_SUFFIX)) is not None:
                self._disk.remove(posixpath.join(self.directory, name))

    def size(self, snapshot_id: OffsetAndEpoch) -> int:
        return self._disk.file_size(self.path(snapshot_id))

    def read(self, snapshot_id: OffsetAndEpoch) -> SnapshotContent:
        """Raises BrokenSnapshot."""
        return parse_snapshot(self._disk.read_bytes(self.path(snapshot_id)))

    def read_piece(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.path(snapshot_id))
        try:
            return file.read_cold(position, max_bytes)
        finally:
            file.close()

    def freeze(self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]) -> int:
        """Write the snapshot. It is durable under its name when this returns its size. Blocks; for a worker."""
        data = b"".join(parts)
        self._disk.write_atomic(self.path(snapshot_id), data)
        return len(data)

    def remove(self, snapshot_id: OffsetAndEpoch) -> None:
        """It may already have been deleted with older ones."""
        with suppress(FileNotFoundError):
            self._disk.remove(self.path(snapshot_id))

    def drop_older(self, snapshot_id: OffsetAndEpoch) -> None:
        for each in self.found():
            if each < snapshot_id:
                self._disk.remove(self.path(each))

    # A snapshot that is being fetched.

    def write_part(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Position 0 starts a new file. Pieces come in order."""
        if position == 0:
            self.close_part()
            self.drop_parts()
            self._part = self._disk.open(self.path(snapshot_id) + PART_SUFFIX, create=True)
        if self._part is None or self._part.size() != position:
            raise ValueError(f"a piece at {position} does not follow what is there of snapshot {snapshot_id}")
        self._part.write_now(data)

    def read_part(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """The complete fetched bytes. Blocks; for a worker."""
        return self._disk.read_bytes(self.path(snapshot_id) + PART_SUFFIX)

    def close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def drop_part(self, snapshot_id: OffsetAndEpoch) -> None:
        self._disk.remove(self.path(snapshot_id) + PART_SUFFIX)
