"""The quorum driver's files: the metadata log, its snapshots and quorum-state; what a start loads from them, their syncs, and what
waits on a full disk.

QuorumFiles has one call for each effect on files. It decides and sends nothing; roles and the meaning of records are unknown
here. Raises OSError. After that the state of the disk is unknown, unless a call states otherwise.

`load_quorum` reads and checks. As in Kafka, the log is truncated only if a newer snapshot is ahead of it.

RoomWatch tells a full disk, and a process without descriptors or memory, from a broken disk. It logs that from time to time,
and checks whether there is space again. A leader that could not append has resigned and stands for no election until then.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.meters import RecentTimes
from kafkacompat.ports import is_full, passes
from kafkacompat.quota.rate import Counted
from kafkacompat.raft import control_records
from kafkacompat.raft import effects as effect
from kafkacompat.raft.applier import Own
from kafkacompat.raft.batches import BrokenBatch, core_batch, headers
from kafkacompat.raft.contracts import LoadedBatch, MetadataLog, MetadataLogProblem
from kafkacompat.raft.election_state import (
    QUORUM_STATE_FILE,
    BrokenElectionState,
    ElectionState,
    format_election_state,
    parse_election_state,
)
from kafkacompat.raft.log_shape import BOOTSTRAP_SNAPSHOT, LogShape
from kafkacompat.raft.packing import MAX_BATCH_BYTES, PackedValues
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, SnapshotStore
from kafkacompat.raft.voter_set import VoterSet, VoterSetHistory
from kafkacompat.records.control import build_control_batch

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Clock, Disk, Timers, Workers

LOADED_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class LoadedQuorum:
    shape: LogShape
    voters: VoterSetHistory
    snapshot_id: OffsetAndEpoch | None
    """The newest snapshot. None if there is only the 0-0 snapshot."""
    content: SnapshotContent | None
    """Its content, or that of the 0-0 snapshot without records."""
    bytes_since_snapshot: int
    batches_since_snapshot: int
    last_timestamp_ms: int


def read_election(disk: Disk, directory: str) -> ElectionState | None:
    path = posixpath.join(directory, QUORUM_STATE_FILE)
    if not disk.exists(path):
        return None
    try:
        return parse_election_state(disk.read_bytes(path))
    except BrokenElectionState as error:
        raise MetadataLogProblem(f"{path}: {error}") from error


def load_quorum(
    log: MetadataLog, store: SnapshotStore, static_voters: VoterSet, note: Callable[[str], None]
) -> LoadedQuorum:
    """Raises MetadataLogProblem if log and snapshots do not fit together. Nothing of the log counts as durable yet."""
    store.drop_parts()
    store.drop_unwritten()
    contents = _readable_snapshots(log, store, note)
    bootstrap = contents.pop(BOOTSTRAP_SNAPSHOT, None)
    newest = max(contents, default=None)
    if newest is None and log.log_start_offset > 0:
        raise MetadataLogProblem(
            f"{store.directory}: the log begins at {log.log_start_offset}, but no snapshot reaches that far"
        )
    if newest is not None and (newest.offset > log.log_end_offset or newest.epoch > log.latest_epoch()):
        log.truncate_fully_and_start_at(newest.offset)
        store.drop_older(newest)
        contents = {newest: contents[newest]}
    if 0 < log.log_start_offset < min(contents, default=BOOTSTRAP_SNAPSHOT).offset:
        # Only whole segments are deleted. The rest below the oldest snapshot looks like earlier records.
        oldest = min(contents)
        log.set_high_watermark(oldest.offset)
        log.drop_below(oldest.offset)
    start = log.log_start_offset
    below = [each for each in contents if each.offset <= start]
    base = max(below, default=None)
    shape = LogShape(
        start,
        start,
        snapshots=[(each, store.size(each)) for each in contents],
        base_epoch=base.epoch if base is not None else 0,
    )
    voters = _first_voters(static_voters, bootstrap)
    if base is not None and contents[base].voters:
        voters.reset(base.offset - 1, VoterSet(contents[base].voters), contents[base].kraft_version)
    size, count, timestamp_ms = _read_log(log, store.directory, shape, voters, newest)
    # The records of the 0-0 snapshot are those with which an active controller begins the log (KIP-1170).
    first = None if bootstrap is None else replace(bootstrap, values=())
    content = contents[newest] if newest is not None else first
    if size == 0 and content is not None:
        timestamp_ms = content.last_contained_timestamp_ms
    return LoadedQuorum(shape, voters, newest, content, size, count, timestamp_ms)


def _readable_snapshots(
    log: MetadataLog, store: SnapshotStore, note: Callable[[str], None]
) -> dict[OffsetAndEpoch, SnapshotContent]:
    """The readable snapshots that are not older than the log's start. A broken one is left out, unless the log begins
    at it."""
    contents: dict[OffsetAndEpoch, SnapshotContent] = {}
    for each in store.found():
        if each != BOOTSTRAP_SNAPSHOT and each.offset < log.log_start_offset:
            continue
        try:
            contents[each] = store.read(each)
        except BrokenSnapshot as error:
            if each.offset <= log.log_start_offset and each.offset > 0:
                raise MetadataLogProblem(f"{store.path(each)}: {error}") from error
            note(f"{store.path(each)} is left aside: {error}")
    return contents


def _first_voters(static_voters: VoterSet, bootstrap: SnapshotContent | None) -> VoterSetHistory:
    if bootstrap is not None and bootstrap.voters:
        return VoterSetHistory(VoterSet(bootstrap.voters), bootstrap.kraft_version)
    return VoterSetHistory(static_voters)


def _read_log(
    log: MetadataLog, directory: str, shape: LogShape, voters: VoterSetHistory, newest: OffsetAndEpoch | None
) -> tuple[int, int, int]:
    """Extend shape and voters to the log's end. Returns (bytes and batches after the newest snapshot, last timestamp)."""
    size, count, timestamp_ms = 0, 0, 0
    offset = shape.start
    counted_from = newest.offset if newest is not None else 0
    try:
        while offset < log.log_end_offset:
            records = log.read(offset, LOADED_CHUNK_BYTES, log.log_end_offset, True).records
            view = memoryview(records if isinstance(records, bytes) else records.read())
            before = offset
            for header in headers(view):
                if header.last_offset < offset:
                    continue
                batch = core_batch(view, header, voters.latest, voters.kraft_version, None)
                offset = batch.end_offset
                shape.append(batch.epoch, offset)
                if batch.voters is not None:
                    voters.add_at(offset - 1, batch.voters, batch.kraft_version)
                if offset > counted_from:
                    size += header.size
                    count += 1
                timestamp_ms = header.max_timestamp_ms
            if offset == before:
                raise MetadataLogProblem(f"{directory}: no whole batch at offset {offset}")
    except (BrokenBatch, ValueError) as error:
        raise MetadataLogProblem(f"{directory}, near offset {offset}: {error}") from error
    return size, count, timestamp_ms


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
        """Make names durable before the files count: after a kill, the name of a vote or snapshot may not be durable, and the
        directory itself may be new. Blocks."""
        self._disk.sync_directory(self._directory)
        self._disk.sync_directory(posixpath.dirname(self._directory))

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


UNCHANGED_WHEN_REFUSED = frozenset(
    {
        effect.PersistElection,
        effect.AppendEpochStart,
        effect.AppendVoters,
        effect.AppendFetched,
        effect.WriteSnapshotChunk,
        effect.Sync,
    }
)
"""Effects that have changed nothing when the disk refuses them, or only what a retry detects."""
UNCHANGED_WHEN_LACKING = UNCHANGED_WHEN_REFUSED | {
    effect.ReplyWithRecords,
    effect.ReplyWithSnapshot,
    effect.Truncate,
}
"""The same for a lack of descriptors or memory. A truncation that has begun fails with HalfDone."""
LOOK_AGAIN_MS = 1_000
NOTE_AGAIN_MS = 60_000
LEAST_ROOM_BYTES = 64 * 1024
"""Less space than this does not count: the next one or two records would fill the disk again."""


class RoomWatch:
    def __init__(
        self,
        files: QuorumFiles,
        clock: Clock,
        timers: Timers,
        note: Callable[[str], None],
        found: Callable[[], None],
    ) -> None:
        """`found` is called when there is space again after `wait`."""
        self._files = files
        self._clock = clock
        self._timers = timers
        self._note = note
        self._found = found
        self._noted_ms: int | None = None
        self._wanted_bytes = 0
        """The size of the last refused append. 0 if nothing waits."""
        self.is_closed = False

    def holds(self, each: effect.Effect, error: OSError) -> bool:
        """Whether a refused effect must be retried."""
        if passes(error):
            is_held = type(each) in UNCHANGED_WHEN_LACKING
        else:
            is_held = is_full(error) and type(each) in UNCHANGED_WHEN_REFUSED
        if not is_held:
            return False
        self._say(f"the quorum waits for the metadata log's directory: {error}")
        return True

    def wait(self, size_bytes: int, error: OSError) -> None:
        """A leader could not append this many bytes."""
        self._say(f"the metadata log takes no records, and this node leads no more: {error}")
        if not self._wanted_bytes:
            self._timers.call_after(LOOK_AGAIN_MS, self._look)
        self._wanted_bytes = max(size_bytes, LEAST_ROOM_BYTES)

    def _look(self) -> None:
        if self.is_closed:
            return
        try:
            self._files.try_room(self._wanted_bytes)
        except (OSError, MemoryError):
            self._timers.call_after(LOOK_AGAIN_MS, self._look)
            return
        self._wanted_bytes = 0
        self._found()

    def _say(self, text: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._noted_ms is None or now_ms - self._noted_ms >= NOTE_AGAIN_MS:
            self._noted_ms = now_ms
            self._note(text)
