"""What the quorum driver keeps on disk: the metadata log, its snapshots, quorum-state; and syncing them.

Effects that touch files, one call for each. Decides nothing, sends nothing, and knows no record's meaning. OSError passes
through; after one of them nothing is known of the disk, save where a call says otherwise.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

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
"""Of log or snapshot read for one answer, on the loop's thread, whatever is asked for: Kafka's defaults of
controller.quorum.fetch.max.bytes and controller.quorum.fetch.snapshot.max.bytes."""


class QuorumFiles:
    def __init__(self, directory: str, log: MetadataLog, disk: Disk, workers: Workers, clock: Clock) -> None:
        self.log = log
        self.snapshots = SnapshotStore(disk, directory)
        self._directory = directory
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._sync_number = 0
        """Of the sync whose end is waited for."""
        self.syncs_at_once = False
        """`sync_now` is at work: no worker is needed."""
        self.bytes_since_snapshot = 0

    def sync_names(self) -> None:
        """Before what lies here counts: the name of a vote or a snapshot that a kill has left may not be durable. Blocks."""
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
        """MetadataLogProblem when they do not fit one batch; after an OSError nothing has changed."""
        now_ms = self._clock.now_ms()
        if values.size_bytes > MAX_BATCH_BYTES:
            raise MetadataLogProblem(
                f"a proposal of {values.count} records does not fit one batch of the metadata log"
            )
        batch = values.batch(base_offset, epoch, now_ms)
        self.log.append_batch(batch, epoch, now_ms)
        self.bytes_since_snapshot += len(batch)
        return Own(base_offset, base_offset + values.count, epoch, now_ms, len(batch))

    def append_fetched(self, each: effect.AppendFetched) -> None:
        # After a refusal for want of room a part of them may be there already.
        end = self.log.log_end_offset
        batches = [batch for batch in each.batches if batch.base_offset >= end]
        if not batches:
            return
        data = batches[0].payload if len(batches) == 1 else b"".join(batch.payload for batch in batches)
        self.log.append_fetched(data, batches[-1].epoch)
        self.bytes_since_snapshot += len(data)

    def try_room(self, size_bytes: int) -> None:
        """OSError where so much cannot be written. The file has the name of one that is half written, which is never read."""
        path = posixpath.join(self._directory, QUORUM_STATE_FILE + ".tmp")
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write_now(bytes(size_bytes))
        finally:
            file.close()
            self._disk.remove(path)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Bytes from the batch at offset on: the first one whole, the last one perhaps not."""
        records = self.log.read(offset, max_bytes, self.log.log_end_offset, True).records
        return records if isinstance(records, bytes) else records.read()

    # Syncing.

    def sync(self, done: Callable[[BaseException | None], None]) -> None:
        """Make durable, in a worker, what is written now; then `done`, with an error or None, in the loop's thread."""
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
        """Blocks. A worker that syncs already is not waited for: its answer is void."""
        self._sync_number += 1
        self.log.begin_sync()()
        self.log.finish_sync()

    # Snapshots.

    def installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The part file, whole and sound, has become a snapshot: it takes the log's place."""
        self.log.truncate_fully_and_start_at(snapshot_id.offset)
        self.snapshots.drop_older(snapshot_id)
        self.bytes_since_snapshot = 0

    def trim(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log starts at this snapshot's end; older snapshots go."""
        self.log.drop_below(snapshot_id.offset)
        self.snapshots.drop_older(snapshot_id)


def bounded(max_bytes: int) -> int:
    return min(max(max_bytes, 0), ANSWER_BYTES_MAX)
