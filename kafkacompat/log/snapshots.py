"""A partition's producer snapshots on disk (`%020d.snapshot`): listing, writing, reading and removing them.

An unreadable snapshot is removed and an older one is used, because the log can be replayed from any of them. So a crash
may come before a snapshot is written, as long as no segment is deleted meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from kafkacompat.ids import is_base_offset
from kafkacompat.log.log_segment import SNAPSHOT_SUFFIX, file_stem
from kafkacompat.log.producer_snapshot import (
    ENCODED_A_STEP,
    SnapshotCorrupt,
    SnapshotInSteps,
    decode_snapshot,
    encode_snapshot,
)
from kafkacompat.log.producer_state import ProducerStateManager

if TYPE_CHECKING:
    from kafkacompat.ports import Disk


class SnapshotStore:
    """Snapshots by their offset (exclusive end)."""

    __slots__ = ("_directory", "_disk", "_last_taken", "_late", "_unfinished", "offsets")

    def __init__(self, disk: Disk, directory: str, names: list[str]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(
            int(name[:20])
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX)
            and len(name) == 20 + len(SNAPSHOT_SUFFIX)
            and is_base_offset(name[:20])
        )
        self._last_taken = -1
        self._unfinished: SnapshotInSteps | None = None
        self._late = -1
        """The snapshot that was finished after its roll. A flush may have passed its offset before it was there."""

    def path(self, offset: int) -> str:
        return file_stem(self._directory, offset) + SNAPSHOT_SUFFIX

    def paths_within(self, offset: int, end_offset: int) -> list[str]:
        """Paths of the snapshots above `offset`, up to and including `end_offset`."""
        return [self.path(each) for each in self.offsets if offset < each <= end_offset]

    def take_late(self, offset: int) -> list[str]:
        """The path of a late snapshot at or below an offset, once."""
        late, self._late = self._late, -1
        return [self.path(late)] if late <= offset and late in self.offsets else []

    def relocate(self, directory: str) -> None:
        self._directory = directory

    def take(self, state: ProducerStateManager) -> None:
        """Write the state at its end offset, unless that snapshot exists."""
        offset = state.end_offset
        if offset == self._last_taken and offset in self.offsets:
            return
        self._write(offset, encode_snapshot(state.producers.values()))

    def _write(self, offset: int, data: bytes) -> None:
        self._disk.write_atomic(self.path(offset), data, sync=False)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        self._last_taken = offset

    def begin(self, state: ProducerStateManager) -> None:
        """Like `take`, but of many producers only the beginning: `go_on` does the rest. While an earlier snapshot is
        not finished, none is begun: the log can be replayed from that one."""
        if len(state.producers) <= ENCODED_A_STEP:
            self.take(state)
        elif not self.is_unfinished(state):
            self._unfinished = state.snapshot = SnapshotInSteps(state.producers, state.end_offset)

    def is_unfinished(self, state: ProducerStateManager) -> bool:
        return self._unfinished is not None and state.snapshot is self._unfinished

    def go_on(self, state: ProducerStateManager) -> bool:
        """Do a step of an unfinished snapshot. Returns whether there is nothing left to do."""
        unfinished = self._unfinished
        if unfinished is None or state.snapshot is not unfinished:
            self._unfinished = None
            return True
        if not unfinished.step():
            return False
        state.snapshot = self._unfinished = None
        self._write(unfinished.end_offset, unfinished.data())
        self._late = unfinished.end_offset
        return True

    def load_latest(self, state: ProducerStateManager, log_start_offset: int, end_offset: int) -> None:
        """Like `read_latest`. Snapshots outside the range are removed, because their records are gone."""
        self.drop_outside(log_start_offset, end_offset)
        self.read_latest(state, log_start_offset, end_offset)

    def read_latest(self, state: ProducerStateManager, log_start_offset: int, end_offset: int) -> None:
        """Load the newest snapshot in (log start, end]. Without one the state is empty at the log start. Snapshots that
        cannot be read are removed."""
        for offset in reversed([each for each in self.offsets if log_start_offset < each <= end_offset]):
            try:
                producers = decode_snapshot(self._disk.read_bytes(self.path(offset)))
            except (SnapshotCorrupt, FileNotFoundError):
                self.remove(offset)
                continue
            state.load(producers, offset)
            self._last_taken = offset
            return
        state.clear(log_start_offset)

    def drop_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Remove snapshots outside (log start, end]."""
        for offset in [o for o in self.offsets if o > end_offset or o <= log_start_offset]:
            self.remove(offset)

    def remove(self, offset: int) -> None:
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            del self.offsets[at]
        try:
            self._disk.remove(self.path(offset))
        except FileNotFoundError:
            return

    def remove_all(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)
        self._last_taken = -1

    def remove_strays(self, segment_bases: list[int]) -> None:
        """Keep the snapshots at a segment's base, and the newest one if it is above every base. Remove the others."""
        bases = set(segment_bases)
        newest = self.offsets[-1] if self.offsets else -1
        for offset in list(self.offsets):
            if offset not in bases and not (offset == newest and offset > max(bases, default=-1)):
                self.remove(offset)
