"""The quorum driver's files: the metadata log, its snapshots and quorum-state; and their syncs.

It has one call for each effect on files. It decides and sends nothing; the meaning of records is unknown here. Raises
OSError. After that the state of the disk is unknown, unless a call states otherwise.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.meters import RecentTimes
from kafkacompat.ports import passes
from kafkacompat.quota.rate import Counted
from kafkacompat.raft import control_records
from kafkacompat.raft import effects as effect
from kafkacompat.raft.applier import Own
from kafkacompat.raft.contracts import LoadedBatch, MetadataLog, MetadataLogProblem
from kafkacompat.raft.election_state import QUORUM_STATE_FILE, ElectionState, format_election_state
from kafkacompat.raft.packing import MAX_BATCH_BYTES, PackedValues
from kafkacompat.raft.snapshot_store import SnapshotStore
from kafkacompat.records.control import build_control_batch

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import OffsetAndEpoch
    from kafkacompat.ports import Clock, Disk, Workers

ANSWER_BYTES_MAX = 1024 * 1024
"""The most bytes of log or snapshot read for one answer, in the loop's thread, whatever the request asks for. Kafka's
defaults of controller.quorum.fetch.max.bytes and controller.quorum.fetch.snapshot.max.bytes."""
READ_BATCH_MS = 500
"""What a batch that a start has read counts, in time since the snapshot. Records without content come at this interval.
Without it nodes that never run for long would write no snapshot, and each start would read more."""


class QuorumFiles:
    def __init__(self, directory: str, log: MetadataLog, disk: Disk, workers: Workers, clock: Clock) -> None:
        self.log = log
        self.snapshots = SnapshotStore(disk, directory)
        self._directory = directory
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._sync_number = 0
        """The number of the sync whose result counts."""
        self.syncs_at_once = False
        """`sync_now` is running, so no worker is needed."""
        self.bytes_since_snapshot = 0
        self.appended = Counted()
        """Records that this node has appended as the leader."""
        self.fetched = Counted()
        """Records that it has taken from a leader."""
        self.commit_times = RecentTimes()
        """From the append of a proposal until it is committed."""
        self._snapshot_bytes = 0
        self._snapshot_ms = clock.monotonic_ms()
        self.batches_read = 0
        """Behind the newest snapshot, by the start. 0 as soon as there is a newer one."""

    def timed(self, committed: Callable[[], None]) -> Callable[[], None]:
        """What is called when a proposal that was just appended is committed."""
        began_ms = self._clock.monotonic_ms()

        def told() -> None:
            now_ms = self._clock.monotonic_ms()
            self.commit_times.note(now_ms - began_ms, now_ms)
            committed()

        return told

    def snapshot_written(self, size_bytes: int) -> None:
        """This node has written a snapshot of its own."""
        self._snapshot_bytes = size_bytes
        self.batches_read = 0
        self._snapshot_ms = self._clock.monotonic_ms()

    def snapshot_written_last(self) -> tuple[int, int]:
        """Size, and age in ms. Before the first one: 0, and the time since the start."""
        return self._snapshot_bytes, self._clock.monotonic_ms() - self._snapshot_ms

    @property
    def ms_since_snapshot(self) -> int:
        return self.snapshot_written_last()[1] + self.batches_read * READ_BATCH_MS

    def sync_names(self) -> None:
        """Make names durable before the files count: after a kill, the name of a vote or snapshot may not be durable.
        Blocks."""
        self._disk.sync_directory(self._directory)

    def persist(self, state: ElectionState, kraft_version: int) -> None:
        path = posixpath.join(self._directory, QUORUM_STATE_FILE)
        self._disk.write_atomic(path, format_election_state(state, kraft_version))

    # The log.

    def append_epoch_start(self, each: effect.AppendEpochStart) -> Own:
        values = [control_records.leader_change(each.leader_id, each.voter_ids, each.granting_ids)]
        kraft_version: int | None = None
        if each.voters is not None:
            kraft_version = each.kraft_version
            values += [
                control_records.kraft_version(kraft_version),
                control_records.voters(each.voters.voters),
            ]
        return self._append_control(values, each.base_offset, each.end_offset, each.epoch, kraft_version)

    def append_voters(self, each: effect.AppendVoters) -> Own:
        values = [control_records.voters(each.voters.voters)]
        kraft_version: int | None = None
        if each.end_offset - each.base_offset > 1:
            kraft_version = each.kraft_version
            values.insert(0, control_records.kraft_version(kraft_version))
        return self._append_control(values, each.base_offset, each.end_offset, each.epoch, kraft_version)

    def _append_control(
        self,
        values: list[tuple[int, bytes]],
        base_offset: int,
        end_offset: int,
        epoch: int,
        kraft_version: int | None,
    ) -> Own:
        now_ms = self._clock.now_ms()
        batch = build_control_batch(values, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=now_ms)
        self.log.append_batch(batch, epoch, now_ms)
        self.bytes_since_snapshot += len(batch)
        control = LoadedBatch((), end_offset - 1, epoch, kraft_version)
        return Own(base_offset, end_offset, epoch, now_ms, len(batch), control)

    def append_proposal(self, values: PackedValues, base_offset: int, epoch: int) -> Own:
        """Raises MetadataLogProblem if the values do not fit one batch. On OSError nothing has changed."""
        now_ms = self._clock.now_ms()
        if values.size_bytes > MAX_BATCH_BYTES:
            raise MetadataLogProblem(
                f"a proposal of {values.count} records does not fit one batch of the metadata log"
            )
        batch = values.batch(base_offset, epoch, now_ms)
        self.log.append_batch(batch, epoch, now_ms)
        self.bytes_since_snapshot += len(batch)
        self.appended.note(self._clock.monotonic_ms(), values.count)
        return Own(base_offset, base_offset + values.count, epoch, now_ms, len(batch))

    def append_fetched(self, each: effect.AppendFetched) -> None:
        # After a failure for lack of space, some of them may already be in the log.
        end = self.log.log_end_offset
        batches = [batch for batch in each.batches if batch.base_offset >= end]
        if not batches:
            return
        data = batches[0].payload if len(batches) == 1 else b"".join(batch.payload for batch in batches)
        self.log.append_fetched(data, batches[-1].epoch)
        self.bytes_since_snapshot += len(data)
        self.fetched.note(self._clock.monotonic_ms(), self.log.log_end_offset - end)

    def try_room(self, size_bytes: int) -> None:
        """Raises OSError if so much cannot be written. The file has the name of an incomplete write, which is never
        read."""
        path = posixpath.join(self._directory, QUORUM_STATE_FILE + ".tmp")
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write_now(bytes(size_bytes))
        finally:
            file.close()
            self._disk.remove(path)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Bytes from the batch at `offset` on. The first batch is complete, the last one may be cut."""
        records = self.log.read(offset, max_bytes, self.log.log_end_offset, True).records
        return records if isinstance(records, bytes) else records.read()

    # Syncing.

    def sync(self, done: Callable[[BaseException | None], None]) -> None:
        """Make the present contents durable in a worker, then call `done` with an error or None in the loop's thread."""
        if self.syncs_at_once:
            return
        self._sync_number += 1
        number = self._sync_number

        def synced(result: Deferred[None]) -> None:
            if number != self._sync_number:
                return
            try:
                result.result()
                self.log.finish_sync()
            except Exception as error:
                done(error)
            else:
                done(None)

        self._workers.submit(self.log.begin_sync()).on_done(synced)

    def sync_now(self) -> None:
        """Sync now. Blocks. A worker's running sync is not waited for: its result is ignored."""
        self._sync_number += 1
        self.log.begin_sync()()
        self.log.finish_sync()

    # Snapshots.

    def installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The complete part file has become a snapshot, which replaces the log."""
        self.log.truncate_fully_and_start_at(snapshot_id.offset)
        self._drop_older(snapshot_id)
        self.bytes_since_snapshot = self.batches_read = 0

    def trim(self, snapshot_id: OffsetAndEpoch) -> None:
        """Start the log at this snapshot's end, and delete older snapshots."""
        self.log.drop_below(snapshot_id.offset)
        self._drop_older(snapshot_id)

    def _drop_older(self, snapshot_id: OffsetAndEpoch) -> None:
        """Without descriptors they stay until the next snapshot: nothing reads them any more."""
        try:
            self.snapshots.drop_older(snapshot_id)
        except OSError as error:
            if not passes(error):
                raise


def bounded(max_bytes: int) -> int:
    return min(max(max_bytes, 0), ANSWER_BYTES_MAX)
