"""The shape of the metadata log in the quorum core: its start and end, and the epoch of each offset.

Pure, without records. The core changes the shape in the same step that asks the shell to change the log, so both agree
whenever the core is entered. Follows Kafka's leader-epoch checkpoint and the rules of ReplicatedLog's validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafkacompat.ids import OffsetAndEpoch

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The voters written by a format. Never offered to followers."""


class Validity(Enum):
    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class LogShape:
    """Offsets are absolute, ends exclusive. An empty log has last epoch 0, or that of the snapshot it starts at."""

    __slots__ = ("_epochs", "_starts", "base_epoch", "durable_end", "end", "last_epoch", "snapshots", "start")

    def __init__(
        self,
        start: int = 0,
        end: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[tuple[OffsetAndEpoch, int]] = (),
        base_epoch: int = 0,
    ) -> None:
        """`epochs` are ascending (epoch, first offset) pairs, `snapshots` (id, size in bytes) pairs. `base_epoch` is
        the epoch below the start."""
        self.start = start
        self.end = end
        self.base_epoch = base_epoch
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [offset for _, offset in epochs]
        self.last_epoch = self._epochs[-1] if self._epochs else base_epoch
        self.durable_end = start
        """Everything below this offset is fsynced."""
        self.snapshots = dict(sorted(snapshots))

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def append(self, epoch: int, end: int) -> None:
        if epoch != self.last_epoch or not self._epochs:
            self._epochs.append(epoch)
            self._starts.append(self.end)
            self.last_epoch = epoch
        self.end = end

    def truncate(self, offset: int) -> None:
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.last_epoch = self._epochs[-1] if self._epochs else self.base_epoch
        self.end = offset
        self.durable_end = min(self.durable_end, offset)

    def restart_at(self, snapshot: OffsetAndEpoch, size_bytes: int) -> None:
        """A durable snapshot has replaced the whole log."""
        self._epochs.clear()
        self._starts.clear()
        self.snapshots = {snapshot: size_bytes}
        self.start = self.end = self.durable_end = snapshot.offset
        self.base_epoch = self.last_epoch = snapshot.epoch

    def trim(self, snapshot: OffsetAndEpoch) -> None:
        """The log now starts at one of its snapshots. Older snapshots are gone."""
        self.start = snapshot.offset
        self.durable_end = max(self.durable_end, self.start)
        self.base_epoch = snapshot.epoch
        self.snapshots = {each: size for each, size in self.snapshots.items() if each >= snapshot}
        while len(self._starts) > 1 and self._starts[1] <= self.start:
            self._starts.pop(0)
            self._epochs.pop(0)
        if self._starts and self._starts[0] < self.start:
            self._starts[0] = self.start

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest known epoch that is not above `epoch`, and its end offset."""
        for index in range(len(self._epochs) - 1, -1, -1):
            if self._epochs[index] <= epoch:
                last = index + 1 == len(self._epochs)
                return OffsetAndEpoch(self.end if last else self._starts[index + 1], self._epochs[index])
        return OffsetAndEpoch(self._starts[0] if self._starts else self.end, self.base_epoch)

    def epoch_before(self, end_offset: int) -> int:
        """The epoch of the last record of a log that ends at end_offset."""
        for index in range(len(self._starts) - 1, -1, -1):
            if self._starts[index] < end_offset:
                return self._epochs[index]
        return self.base_epoch

    def validate(self, offset: int, epoch: int) -> tuple[Validity, OffsetAndEpoch | None]:
        """The result for a fetch at (offset, last fetched epoch)."""
        latest = self.latest_snapshot
        if latest == BOOTSTRAP_SNAPSHOT:
            latest = None
        if offset == 0 and latest is not None:
            return Validity.SNAPSHOT, latest
        if self.start == 0 and offset == 0 and epoch == 0:
            return Validity.VALID, None
        earliest = self.earliest_snapshot
        if (
            latest is not None
            and earliest is not None
            and (
                offset < self.start
                or (offset == self.start and epoch != earliest.epoch)
                or epoch < earliest.epoch
            )
        ):
            return Validity.SNAPSHOT, latest
        end = self.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Validity.DIVERGING, end
        return Validity.VALID, None

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """The offset at which to truncate for a leader whose `diverging.epoch` ends at `diverging.offset`."""
        if diverging.epoch == 0:
            return 0
        mine = self.end_offset_for_epoch(diverging.epoch)
        return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
