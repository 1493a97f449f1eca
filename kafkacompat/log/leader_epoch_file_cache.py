"""The start offset of each leader epoch: the cache of KIP-101 for one partition's log.

It has the rules for assigning, truncating and looking up epochs. The log writes `entries` when `changed` is true.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kafkacompat.ids import OffsetAndEpoch

UNDEFINED = OffsetAndEpoch(-1, -1)


class LeaderEpochFileCache:
    """Epochs and their start offsets. Both are strictly ascending."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False
        """True if the entries differ from the file."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def latest_epoch(self) -> int:
        """The latest epoch. -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that starts at `start_offset`. Ignored if it is already the latest epoch and does not start
        earlier."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return
        # Entries with an equal or higher epoch or start offset do not belong to this history.
        kept = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[kept:], self._starts[kept:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True

    def confirm(self, epoch: int, offset: int) -> None:
        """Record that a batch of this epoch is at this offset. Entries that contradict it are dropped, and nothing is
        assumed about later offsets."""
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= offset:
            return
        if self.epoch_for_offset(offset) == epoch:
            return
        kept = min(bisect_right(self._epochs, epoch), bisect_left(self._starts, offset))
        del self._epochs[kept:], self._starts[kept:]
        if not kept or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._starts.append(offset)
        self.changed = True

    def put_before(self, earlier: LeaderEpochFileCache) -> None:
        """Put the epochs of earlier offsets before the present ones. If the last earlier epoch is also the first
        present one, the earlier start counts."""
        known = bisect_right(self._epochs, earlier.latest_epoch())
        self._epochs[:known] = earlier._epochs
        self._starts[:known] = earlier._starts
        self.changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or after the log's new end."""
        kept = bisect_left(self._starts, end_offset)
        if kept < len(self._starts):
            del self._epochs[kept:], self._starts[kept:]
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs before the log's new start. The epoch at that offset then starts there."""
        dropped = bisect_right(self._starts, start_offset)
        if not dropped or self._starts[dropped - 1] == start_offset == self._starts[0]:
            return
        epoch = self._epochs[dropped - 1]
        self._epochs[:dropped] = [epoch]
        self._starts[:dropped] = [start_offset]
        self.changed = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """(end offset, epoch) of the largest known epoch that is not above `epoch`. Both are -1 if undefined.

        Below the oldest known epoch the result is (start offset of the oldest epoch, `epoch`).
        """
        if epoch == -1 or not self._epochs:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED
        if higher == 0:
            return OffsetAndEpoch(self._starts[0], epoch)
        return OffsetAndEpoch(self._starts[higher], self._epochs[higher - 1])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of an offset. -1 below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else -1
