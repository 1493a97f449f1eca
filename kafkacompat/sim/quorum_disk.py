"""The simulated disk of one quorum node: metadata log, quorum-state, snapshots. A crash loses what was not synced.

A crash keeps the synced part of the log and a random prefix of the rest. A truncation is not durable before a sync
either: batches that were cut off since the last sync may reappear. quorum-state and frozen snapshots are written,
synced and renamed atomically.
"""

from __future__ import annotations

from bisect import bisect_left

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.log_shape import LogShape
from kafkacompat.raft.messages import Batch
from kafkacompat.raft.voter_set import VoterSet, VoterSetHistory
from kafkacompat.sim.chance import Chance


class DiskMisuse(Exception):
    """The core requested an operation that is impossible for a log."""


class Snapshot:
    __slots__ = ("data", "kraft_version", "voters")

    def __init__(self, data: bytes, voters: VoterSet | None, kraft_version: int) -> None:
        self.data = data
        self.voters = voters
        self.kraft_version = kraft_version


class QuorumDisk:
    def __init__(self) -> None:
        self.election: ElectionState | None = None
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        """Base offset of each batch."""
        self.start = 0
        self.base_epoch = 0
        self.end = 0
        self.durable_end = 0
        self._resurrectable: list[Batch] | None = None
        """Durable batches that were cut off since the last sync."""
        self._syncing: tuple[int, list[Batch] | None] = (0, None)
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self._part = bytearray()
        self.lost_bytes = 0

    # The log.

    def index_of(self, offset: int) -> int:
        """Return the index of the batch that begins at the offset, or its insertion point."""
        return bisect_left(self.bases, offset)

    def append(self, batch: Batch) -> None:
        if batch.base_offset != self.end or batch.end_offset <= batch.base_offset:
            raise DiskMisuse(f"a batch at {batch.base_offset} does not follow the log's end {self.end}")
        self.batches.append(batch)
        self.bases.append(batch.base_offset)
        self.end = batch.end_offset

    def truncate(self, offset: int) -> None:
        if offset < self.start:
            raise DiskMisuse(f"cannot cut at {offset}: the log starts at {self.start}")
        index = self.index_of(offset)
        if index > 0 and self.batches[index - 1].end_offset > offset:
            raise DiskMisuse(f"cannot cut at {offset}: it lies inside a batch")
        if self._resurrectable is None and offset < self.durable_end:
            self._resurrectable = self.batches[index : self.index_of(self.durable_end)]
        elif self._resurrectable is not None and offset < self._resurrectable[0].base_offset:
            # The earlier truncation no longer matters: the batches in between were synced before it.
            self._resurrectable = self.batches[index : self.index_of(self.durable_end)] + self._resurrectable
        del self.batches[index:]
        del self.bases[index:]
        self.end = offset
        self.durable_end = min(self.durable_end, offset)
        self._syncing = (min(self._syncing[0], offset), self._syncing[1])

    def read(self, offset: int, max_bytes: int) -> tuple[Batch, ...]:
        """Return whole batches from the one that begins at the offset, at least one."""
        index = self.index_of(offset)
        if index >= len(self.bases) or self.bases[index] != offset:
            raise DiskMisuse(f"no batch begins at {offset}")
        found = [self.batches[index]]
        size = found[0].size_bytes
        for batch in self.batches[index + 1 : index + 65]:
            size += batch.size_bytes
            if size > max_bytes:
                break
            found.append(batch)
        return tuple(found)

    def begin_sync(self) -> None:
        self._syncing = (self.end, self._resurrectable)

    def finish_sync(self) -> None:
        end, resurrectable = self._syncing
        self.durable_end = max(self.durable_end, min(end, self.end))
        if self._resurrectable is resurrectable:
            self._resurrectable = None

    def holds(self, batch: Batch) -> bool:
        """Whether the batch is durable here, in the log or in a snapshot."""
        if batch.end_offset <= self.start:
            return True
        if batch.end_offset > self.durable_end:
            return False
        index = self.index_of(batch.base_offset)
        return index < len(self.batches) and self.batches[index] is batch

    # Snapshots.

    def freeze(self, snapshot_id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        self.snapshots[snapshot_id] = snapshot

    def trim(self, snapshot_id: OffsetAndEpoch) -> None:
        index = self.index_of(snapshot_id.offset)
        if snapshot_id not in self.snapshots or snapshot_id.offset > self.durable_end:
            raise DiskMisuse(f"the log cannot start at {snapshot_id}")
        del self.batches[:index]
        del self.bases[:index]
        self.start, self.base_epoch = snapshot_id
        self.snapshots = {each: held for each, held in self.snapshots.items() if each >= snapshot_id}

    def write_part(self, position: int, data: bytes) -> None:
        if position == 0:
            self._part.clear()
        if position != len(self._part):
            raise DiskMisuse(f"a chunk at {position} does not follow {len(self._part)} bytes")
        self._part += data

    def take_part(self) -> bytes:
        data = bytes(self._part)
        self._part.clear()
        return data

    def install(self, snapshot_id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        self.batches.clear()
        self.bases.clear()
        self._resurrectable = None
        self._syncing = (min(self._syncing[0], snapshot_id.offset), None)
        self.snapshots = {snapshot_id: snapshot}
        self.start, self.base_epoch = snapshot_id
        self.end = self.durable_end = self.start

    # Crash and start.

    def crash(self, chance: Chance, keeps_writing: float) -> int:
        """Lose everything that was not synced. Return the number of bytes lost."""
        self._part.clear()
        before = list(self.batches)
        if self._resurrectable is not None and chance.happens(0.5):
            keep = self.index_of(self._resurrectable[0].base_offset)
            kept = self.batches[:keep] + self._resurrectable
        else:
            durable = self.index_of(self.durable_end)
            most = int((len(self.batches) - durable) * keeps_writing)
            kept = self.batches[: durable + (chance.between(0, most) if most else 0)]
        self._resurrectable = None
        self.batches = kept
        self.bases = [batch.base_offset for batch in kept]
        self.end = kept[-1].end_offset if kept else self.start
        self.durable_end = self.end
        survivors = {id(batch) for batch in kept}
        lost = sum(batch.size_bytes for batch in before if id(batch) not in survivors)
        self.lost_bytes += lost
        return lost

    def open(self) -> LogShape:
        """Return the shape of the log after a crash, as a start reads it. A newer snapshot replaces a log that ends before it."""
        newest = max(self.snapshots, default=None)
        if newest is not None and (newest.offset > self.end or newest.epoch > self.last_epoch):
            self.install(newest, self.snapshots[newest])
        epochs: list[tuple[int, int]] = []
        for batch in self.batches:
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
        sizes = [(snapshot_id, len(held.data)) for snapshot_id, held in self.snapshots.items()]
        shape = LogShape(self.start, self.end, epochs, sizes, self.base_epoch)
        shape.durable_end = self.end
        return shape

    def voter_history(self, static: VoterSet, kraft_version: int) -> VoterSetHistory:
        history = VoterSetHistory(static, kraft_version)
        below = [each for each in sorted(self.snapshots) if each.offset <= self.start]
        if below and self.snapshots[below[-1]].voters is not None:
            held = self.snapshots[below[-1]]
            history.reset(below[-1].offset - 1, held.voters, held.kraft_version)
        for batch in self.batches:
            if batch.voters is not None:
                history.add_at(batch.end_offset - 1, batch.voters, batch.kraft_version)
        return history

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.base_epoch
