"""The metadata log at work: load it, lead it, append proposals, make them durable together, hand them out committed.

Duty: carry out raft/core's effects on a Log and a Disk. Decides nothing about roles and knows no record's meaning: values are
framed bytes. Several proposals share one fsync: while one sync is on its way, all later appends wait for the next.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.ports import Clock, Disk, LogRead, Workers
from kafkacompat.raft import control_records
from kafkacompat.raft.core import (
    AdvanceHighWatermark,
    AppendEpochStart,
    Effect,
    PersistElection,
    QuorumView,
    RaftCore,
)
from kafkacompat.raft.election_state import (
    QUORUM_STATE_FILE,
    BrokenElectionState,
    ElectionState,
    format_election_state,
    parse_election_state,
)
from kafkacompat.raft.quorum_report import QuorumReport, ReplicaReport
from kafkacompat.raft.snapshot import (
    BrokenSnapshot,
    SnapshotContent,
    batch_records,
    format_snapshot,
    pack_values,
    parse_snapshot,
    parse_snapshot_name,
    snapshot_file_name,
)
from kafkacompat.raft.voters import Voter
from kafkacompat.records.batch import BatchCorrupt, iterate_batches
from kafkacompat.records.control import ControlType, build_control_batch, parse_control_key
from kafkacompat.records.record import RecordMalformed
from kafkacompat.wire.errors import WireError

READ_CHUNK_BYTES = 8 * 1024 * 1024


class MetadataLogProblem(Exception):
    """The metadata log cannot be used: halt, keep the files. The message names file and reason."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Committed values in log order, from a snapshot or a batch. `last_offset` is that of the batch or snapshot."""

    values: Sequence[bytes]
    last_offset: int
    epoch: int
    kraft_version: int | None = None
    """Set when a control record of this batch states it."""
    is_snapshot: bool = False


class MetadataLog(Protocol):
    """The metadata partition's log as the driver uses it (raft/metadata_log.py; in memory in tests and the simulator)."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def latest_epoch(self) -> int: ...

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool
    ) -> LogRead: ...

    def set_high_watermark(self, offset: int) -> None: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def append_batch(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Append a built batch whose offsets follow the log's end. OSError passes through and nothing has changed."""
        ...

    def begin_sync(self) -> Callable[[], None]:
        """A call for a worker thread that makes durable what is written now; `finish_sync` follows it in the loop."""
        ...

    def finish_sync(self) -> None: ...

    def drop_below(self, offset: int) -> None:
        """A snapshot holds everything below: the log starts there, and whole segments below may go."""
        ...


class RaftDriver:
    """One node's metadata log. `load`, then `lead`, then `propose`; all in the loop's thread."""

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: Uuid,
        directory: str,
        log: MetadataLog,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        static_voters: tuple[Voter, ...],
        own_listeners: tuple[tuple[str, str, int], ...],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`directory` is `<metadata.log.dir>/__cluster_metadata-0`; `fail` halts the node."""
        self._directory = directory
        self._directory_id = directory_id
        self._log = log
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._own_listeners = own_listeners
        self._fail = fail
        self.core = RaftCore(node_id)
        self.voters = static_voters
        self.kraft_version = 0
        self._voters_in_log = False
        self._last_timestamp_ms = 0
        self._syncing = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """(end offset, call when committed), in log order."""
        self._failed = False
        self.bytes_since_snapshot = 0
        self.latest_snapshot: tuple[int, int] | None = None

    @property
    def next_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def high_watermark(self) -> int:
        return self.core.high_watermark

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it; None until the epoch's first batch is committed."""
        if self.core.high_watermark < 0:
            return None
        now_ms = self._clock.now_ms()
        # Alone, so every voter is this node, which has fetched all that it wrote.
        voters = tuple(
            ReplicaReport(each.id, each.directory_id, self.next_offset, now_ms, now_ms, each.listeners)
            for each in self.voters
        )
        return QuorumReport(self.core.node_id, self.epoch, self.high_watermark, voters)

    def load(self, apply: Callable[[LoadedBatch], None]) -> None:
        """Hand over the newest snapshot and the log behind it. With one voter all of the log counts as committed."""
        start = self._load_snapshot(apply)
        log = self._log
        if log.log_start_offset > start:
            raise MetadataLogProblem(
                f"{self._directory}: the log begins at {log.log_start_offset}, but no snapshot reaches that far"
            )
        if log.log_end_offset < start:
            log.truncate_fully_and_start_at(start)
        offset = start
        while offset < log.log_end_offset:
            read = log.read(offset, READ_CHUNK_BYTES, log.log_end_offset, True).records
            data = read if isinstance(read, bytes) else read.read()
            reached = self._apply_chunk(data, offset, apply)
            if reached == offset:
                raise MetadataLogProblem(f"{self._directory}: no whole batch at offset {offset}")
            offset = reached

    def _load_snapshot(self, apply: Callable[[LoadedBatch], None]) -> int:
        names = self._disk.list_directory(self._directory)
        found = sorted(
            ((parsed, name) for name in names if (parsed := parse_snapshot_name(name)) is not None),
            reverse=True,
        )
        for (end_offset, epoch), name in found:
            path = posixpath.join(self._directory, name)
            try:
                content = parse_snapshot(self._disk.read_bytes(path))
            except BrokenSnapshot as error:
                if end_offset <= self._log.log_start_offset and end_offset > 0:
                    raise MetadataLogProblem(f"{path}: {error}") from error
                continue
            if content.voters:
                self.voters = content.voters
                self.kraft_version = content.kraft_version
                self._voters_in_log = end_offset > 0
            if end_offset == 0:
                # The voters a format gave this node; it holds no metadata and precedes the log.
                apply(LoadedBatch((), -1, -1, content.kraft_version))
                return 0
            self.latest_snapshot = (end_offset, epoch)
            self._last_timestamp_ms = content.last_contained_timestamp_ms
            apply(LoadedBatch(content.values, end_offset - 1, epoch, content.kraft_version, True))
            return end_offset
        return 0

    def _apply_chunk(self, data: bytes, offset: int, apply: Callable[[LoadedBatch], None]) -> int:
        view = memoryview(data)
        try:
            for header in iterate_batches(view):
                if header.last_offset < offset:
                    continue
                self.bytes_since_snapshot += header.size
                self._last_timestamp_ms = header.max_timestamp_ms
                kraft_version: int | None = None
                values: list[bytes] = []
                for record in batch_records(view, header):
                    if header.is_control:
                        kraft_version = self._load_control(record.key, record.value or b"", kraft_version)
                    elif header.base_offset + record.offset_delta >= offset:
                        values.append(record.value or b"")
                apply(LoadedBatch(values, header.last_offset, header.leader_epoch, kraft_version))
                offset = header.last_offset + 1
        except (BatchCorrupt, BrokenSnapshot, RecordMalformed, WireError) as error:
            raise MetadataLogProblem(f"{self._directory}, near offset {offset}: {error}") from error
        return offset

    def _load_control(self, key: bytes | None, value: bytes, kraft_version: int | None) -> int | None:
        kind = parse_control_key(key)
        if kind == ControlType.KRAFT_VERSION:
            self.kraft_version = control_records.parse_kraft_version(value)
            return self.kraft_version
        if kind == ControlType.KRAFT_VOTERS:
            self.voters = control_records.parse_voters(value)
            self._voters_in_log = True
        return kraft_version

    def lead(self, on_first_commit: Callable[[], None]) -> None:
        """Win the election of one and append the epoch's first batch."""
        view = QuorumView(
            node_id=self.core.node_id,
            directory_id=self._directory_id,
            voters=self.voters,
            kraft_version=self.kraft_version,
            voters_in_log=self._voters_in_log,
            own_listeners=self._own_listeners,
            stored=self._read_election(),
            last_epoch=max(
                self._log.latest_epoch(), 0, self.latest_snapshot[1] if self.latest_snapshot else 0
            ),
            log_end_offset=self._log.log_end_offset,
        )
        for effect in self.core.boot(view):
            self._carry_out(effect)
        self.when_committed(on_first_commit)

    def _read_election(self) -> ElectionState:
        path = posixpath.join(self._directory, QUORUM_STATE_FILE)
        if not self._disk.exists(path):
            return ElectionState()
        try:
            return parse_election_state(self._disk.read_bytes(path))
        except BrokenElectionState as error:
            raise MetadataLogProblem(f"{path}: {error}") from error

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PersistElection(state):
                data = format_election_state(state, self.kraft_version)
                self._disk.write_atomic(posixpath.join(self._directory, QUORUM_STATE_FILE), data)
            case AppendEpochStart(epoch, leader_id, voters, with_voters):
                ids = [voter.id for voter in voters]
                values = [control_records.leader_change(leader_id, ids, ids)]
                if with_voters:
                    values += [
                        control_records.kraft_version(self.kraft_version),
                        control_records.voters(voters),
                    ]
                    self.voters = voters
                now_ms = self._clock.now_ms()
                batch = build_control_batch(
                    values, base_offset=self.next_offset, leader_epoch=epoch, timestamp_ms=now_ms
                )
                self._write(batch, now_ms)
            case AdvanceHighWatermark(offset):
                self._log.set_high_watermark(offset)
                while self._waiting and self._waiting[0][0] <= offset:
                    self._waiting.popleft()[1]()

    def propose(self, values: Sequence[bytes], committed: Callable[[], None]) -> int:
        """Append framed values as one atomic batch; `committed` is called, in order of proposals, once they are durable.

        Returns the first offset. MetadataLogProblem when they do not fit one batch; OSError passes through and nothing changed.
        """
        if self._failed:
            raise MetadataLogProblem(f"{self._directory}: the metadata log has failed")
        now_ms = self._clock.now_ms()
        first = self.next_offset
        batches = list(pack_values(values, first, self.core.epoch, now_ms))
        if len(batches) != 1:
            raise MetadataLogProblem(
                f"a proposal of {len(values)} records does not fit one batch of the metadata log"
            )
        self._write(batches[0], now_ms)
        self.when_committed(committed)
        return first

    def upgrade_kraft_version(self, level: int) -> None:
        """Append level and voters in one batch; both hold at once (KIP-853). This node is the only voter.

        OSError passes through and nothing has changed.
        """
        voters = (Voter(self.core.node_id, self._directory_id, self._own_listeners),)
        now_ms = self._clock.now_ms()
        values = [control_records.kraft_version(level), control_records.voters(voters)]
        batch = build_control_batch(
            values, base_offset=self.next_offset, leader_epoch=self.epoch, timestamp_ms=now_ms
        )
        self._write(batch, now_ms)
        self.kraft_version, self.voters, self._voters_in_log = level, voters, True

    def _write(self, batch: bytearray, now_ms: int) -> None:
        self._log.append_batch(batch, self.core.epoch, now_ms)
        self.bytes_since_snapshot += len(batch)
        self._last_timestamp_ms = now_ms

    @property
    def is_all_committed(self) -> bool:
        return self.core.high_watermark >= self.next_offset

    def when_committed(self, call: Callable[[], None]) -> None:
        """Call once everything appended so far is committed, after the calls that wait already; at once if it is."""
        if not self._waiting and self.is_all_committed:
            call()
            return
        self._waiting.append((self.next_offset, call))
        if not self._syncing:
            self._start_sync()

    def _start_sync(self) -> None:
        self._syncing = True
        end_offset = self.next_offset
        self._workers.submit(self._log.begin_sync()).on_done(lambda done: self._synced(done, end_offset))

    def _synced(self, done: Deferred[None], end_offset: int) -> None:
        self._syncing = False
        try:
            done.result()
        except OSError as error:
            # What is on the disk is unknown now: no reply may follow from it.
            self._failed = True
            self._fail(error)
            return
        self._log.finish_sync()
        for effect in self.core.synced(end_offset):
            self._carry_out(effect)
        if self._waiting and not self._syncing:
            self._start_sync()

    def flush_now(self) -> None:
        """Make everything durable and committed before returning: for shutdown, when the loop may be ending."""
        while self._waiting:
            end_offset = self.next_offset
            self._log.begin_sync()()
            self._log.finish_sync()
            for effect in self.core.synced(end_offset):
                self._carry_out(effect)

    def write_snapshot(self, values: Sequence[bytes], end_offset: int, epoch: int) -> None:
        """A snapshot of everything below end_offset, which is committed and at a batch boundary; older log and snapshots go."""
        content = SnapshotContent(values, self._last_timestamp_ms, self.kraft_version, self.voters)
        data = format_snapshot(content, epoch, self._clock.now_ms())
        name = snapshot_file_name(end_offset, epoch)
        self._disk.write_atomic(posixpath.join(self._directory, name), data)
        self.latest_snapshot = (end_offset, epoch)
        self.bytes_since_snapshot = 0
        self._log.drop_below(end_offset)
        for each in self._disk.list_directory(self._directory):
            parsed = parse_snapshot_name(each)
            if parsed is not None and parsed < (end_offset, epoch):
                self._disk.remove(posixpath.join(self._directory, each))
