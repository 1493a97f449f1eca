"""Which leader epoch began at which offset: KIP-101's cache for one partition's log.

Duty: the rules of assign, truncate and lookup. Must not know: files (the log writes `entries` when `changed` says so).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kafkacompat.ids import OffsetAndEpoch

UNDEFINED = OffsetAndEpoch(-1, -1)


class LeaderEpochCache:
    """Epochs and their start offsets, both strictly ascending."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.changed = False
        """True when the entries differ from what was last written."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def latest_epoch(self) -> int:
        """-1 when empty."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins here. Ignored when it is the latest already and does not begin earlier."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return
        # What lies at or beyond the new entry, in epoch or offset, was never part of this history.
        kept = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[kept:], self._starts[kept:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True

    def confirm(self, epoch: int, offset: int) -> None:
        """A batch of this epoch lies at this offset, and nothing is known of what follows it: whatever says otherwise goes."""
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

    def put_before(self, earlier: LeaderEpochCache) -> None:
        """Epochs of what lies before the first one here. The last of them may be that one, which then began there."""
        known = bisect_right(self._epochs, earlier.latest_epoch())
        self._epochs[:known] = earlier._epochs
        self._starts[:known] = earlier._starts
        self.changed = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after the log's new end."""
        kept = bisect_left(self._starts, end_offset)
        if kept < len(self._starts):
            del self._epochs[kept:], self._starts[kept:]
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what lies before the log's new start; the epoch in force there begins there from now on."""
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
        """(end offset, epoch) of the largest known epoch not above the asked one; both -1 when undefined.

        Below the oldest known epoch the answer is (start of the first one, the asked epoch).
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
        """The epoch in force at an offset; -1 below the first one."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else -1
