"""A member of the metadata quorum at work: the quorum core's effects carried out on log, disk, workers and transport.

Duty: keep the contract of raft/quorum.py. A list of effects is carried out whole before the next event; what leaves the driver
(answers, requests, calls of the state machine) waits in an outbox until then, so that whoever is called may enter the driver
again. Decides nothing about roles and knows no record's meaning. Several proposals share one fsync: while one is under way, later
appends wait for the next. controller.quorum.append.linger.ms has no use here: a batch is never held back.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, NO_OFFSET, OffsetAndEpoch
from kafkacompat.ports import Clock, Disk, LogRefused, Random, TimerHandle, Timers, Workers
from kafkacompat.raft import control_records
from kafkacompat.raft import effects as effect
from kafkacompat.raft.applier import Applier, Own
from kafkacompat.raft.contracts import (
    LoadedBatch,
    MetadataLog,
    MetadataLogProblem,
    NotLeader,
    QuorumTransport,
    StateMachine,
)
from kafkacompat.raft.election_state import QUORUM_STATE_FILE, format_election_state
from kafkacompat.raft.messages import Response
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_calls import QuorumCalls
from kafkacompat.raft.quorum_loading import load_quorum, read_election
from kafkacompat.raft.quorum_report import QuorumReport, leader_report
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.roles import NEVER_MS, QuorumViolation, Role
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent, format_snapshot, pack_values
from kafkacompat.raft.snapshot_store import SnapshotStore
from kafkacompat.raft.voter_set import Endpoints, VoterSet
from kafkacompat.raft.voters import Voter
from kafkacompat.records.control import build_control_batch
from kafkacompat.wire.errors import ErrorCode


class QuorumDriver:
    """One node's part in the quorum. `start` once; everything in the loop's thread."""

    def __init__(
        self,
        *,
        member: Member,
        settings: QuorumSettings,
        listener_name: str,
        directory: str,
        log: MetadataLog,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        random: Random,
        static_voters: Sequence[Voter],
        transport: QuorumTransport,
        fail: Callable[[BaseException], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`directory` is `<metadata.log.dir>/__cluster_metadata-0`; `listener_name` the default controller listener; `fail`
        halts the node."""
        self._member = member
        self._settings = settings
        self._directory = directory
        self._log = log
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._random = random
        self._static_voters = VoterSet(static_voters)
        self._fail = fail
        self._note = note
        self._snapshots = SnapshotStore(disk, directory)
        self._calls = QuorumCalls(member, settings, listener_name, transport, self._enter)
        self._timer: TimerHandle | None = None
        self._timer_at_ms = NEVER_MS
        self._events: deque[effect.Event] = deque()
        self._outbox: deque[Callable[[], None]] = deque()
        """Calls that leave the driver, in order; bounded by what one step asks for and its calls ask for in turn."""
        self._stepping = False
        self._draining = False
        self._closed = False
        self._led_epoch = -1
        """The epoch this node leads as far as the machine was told; -1: none."""
        self._activation: tuple[int, int] | None = None
        """(epoch, end of its first batch) until the machine is told."""
        self._proposals: dict[int, Own] = {}
        self._next_proposal_id = 0
        self._appended_ahead: Own | None = None
        """A proposal that is in the log before the core is told of it."""
        self._sync_number = 0
        self._syncing_now = False
        """A sync is done in the loop's thread: no worker is needed."""
        self._leaving: Deferred[None] | None = None
        self.bytes_since_snapshot = 0

    def start(self, machine: StateMachine) -> None:
        """Load what is on disk, take up the stored role, set the timer. Raises MetadataLogProblem.

        The machine gets the newest snapshot before this returns; batches follow as they are known to be committed.
        """
        loaded = load_quorum(self._log, self._snapshots, self._static_voters, self._note)
        stored = read_election(self._disk, self._directory)
        self._machine = machine
        self.bytes_since_snapshot = loaded.bytes_since_snapshot
        self._core = core = QuorumCore(
            self._member, self._settings, self._random, loaded.shape, loaded.voters
        )
        self._calls.core = core
        high_watermark = loaded.snapshot_id.offset if loaded.snapshot_id is not None else NO_OFFSET
        self._log.set_high_watermark(max(high_watermark, 0))
        self._applier = Applier(self._log, machine, 0)
        if loaded.content is not None:
            self._outbox.append(partial(self._applier.load, loaded.snapshot_id, loaded.content))
        self._applier.last_timestamp_ms = loaded.last_timestamp_ms
        self._stepping = True
        try:
            self._carry_out(core.boot(stored, high_watermark, self._clock.monotonic_ms()))
        finally:
            self._stepping = False
        if core.role is Role.FOLLOWER:
            self._outbox.append(partial(machine.leader_changed, core.epoch, core.election.leader_id))
        self._pump()

    # Events in, effects carried out, calls out.

    def _enter(self, event: effect.Event) -> None:
        if not self._closed:
            self._events.append(event)
            self._pump()

    def _pump(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and not self._closed:
                self._step(self._events.popleft())
        finally:
            self._stepping = False
        self._plan_tick()
        if self._draining:
            return
        self._draining = True
        try:
            while self._outbox and not self._closed:
                self._outbox.popleft()()
        finally:
            self._draining = False

    def _step(self, event: effect.Event) -> None:
        try:
            self._carry_out(self._core.step(event, self._clock.monotonic_ms()))
        except (QuorumViolation, ValueError, OSError, LogRefused, MetadataLogProblem) as problem:
            self._halt(problem)

    def _halt(self, problem: BaseException) -> None:
        """What is on the disk is unknown, or the quorum is broken: no answer may follow from it."""
        self.close()
        self._fail(problem)

    def _carry_out(self, effects: list[effect.Effect]) -> None:
        for each in effects:
            _CARRY_OUT[type(each)](self, each)
        core = self._core
        if self._led_epoch >= 0 and (core.leader is None or core.epoch != self._led_epoch):
            resigned_epoch, self._led_epoch = self._led_epoch, -1
            if core.role is Role.RESIGNED:
                self._outbox.append(partial(self._leader_changed, resigned_epoch, NO_LEADER))
        if self._leaving is not None:
            self._maybe_left()

    def _plan_tick(self) -> None:
        """An earlier timer stays: when it fires, the next one is set."""
        wake_ms = NEVER_MS if self._closed else self._core.wake_ms
        if wake_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = wake_ms
        self._timer = self._timers.call_at(wake_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at_ms = NEVER_MS
        if self._closed:
            return
        if self._clock.monotonic_ms() < self._core.wake_ms:
            self._plan_tick()
        else:
            self._enter(effect.Tick())

    # Requests of others and answers to ours.

    def handle(self, message: Any, api_version: int) -> Deferred[Any]:
        """Answer Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata topic, Add-, Remove- and
        UpdateRaftVoter, as wire messages, with Kafka's errors."""
        return self._calls.receive(message, api_version)

    def _send(self, each: effect.Send) -> None:
        self._outbox.append(partial(self._calls.send, each))

    def _probe(self, each: effect.ProbeVoter) -> None:
        self._outbox.append(partial(self._calls.probe, each))

    def _answer(self, request_id: int, response: Response, records: Any = b"") -> None:
        self._outbox.append(partial(self._calls.answer, request_id, response, records))

    def _reply(self, each: effect.Reply) -> None:
        self._answer(each.request_id, each.response)

    def _reply_with_records(self, each: effect.ReplyWithRecords) -> None:
        records = self._log.read(each.offset, each.max_bytes, self._log.log_end_offset, True).records
        self._answer(
            each.request_id, each.response, records if isinstance(records, bytes) else records.read()
        )

    def _reply_with_snapshot(self, each: effect.ReplyWithSnapshot) -> None:
        response = each.response
        response.data = self._snapshots.read_piece(response.snapshot_id, response.position, each.max_bytes)
        self._answer(each.request_id, response)

    # Disk.

    def _persist(self, each: effect.PersistElection) -> None:
        data = format_election_state(each.state, self._core.voters.kraft_version)
        self._disk.write_atomic(posixpath.join(self._directory, QUORUM_STATE_FILE), data)

    def _append_epoch_start(self, each: effect.AppendEpochStart) -> None:
        values = [control_records.leader_change(each.leader_id, each.voter_ids, each.granting_ids)]
        kraft_version: int | None = None
        if each.voters is not None:
            kraft_version = each.kraft_version
            values += [
                control_records.kraft_version(kraft_version),
                control_records.voters(each.voters.voters),
            ]
        self._activation = (each.epoch, each.end_offset)
        self._append_control(values, each.base_offset, each.end_offset, each.epoch, kraft_version)

    def _append_voters(self, each: effect.AppendVoters) -> None:
        values = [control_records.voters(each.voters.voters)]
        kraft_version: int | None = None
        if each.end_offset - each.base_offset > 1:
            kraft_version = each.kraft_version
            values.insert(0, control_records.kraft_version(kraft_version))
        waiting = self._proposals.pop(each.proposal_id, None)
        own = self._append_control(values, each.base_offset, each.end_offset, each.epoch, kraft_version)
        if waiting is not None:
            own.committed, own.lost = waiting.committed, waiting.lost

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
        self._log.append_batch(batch, epoch, now_ms)
        self.bytes_since_snapshot += len(batch)
        control = LoadedBatch((), end_offset - 1, epoch, kraft_version)
        own = Own(base_offset, end_offset, epoch, now_ms, control)
        self._applier.appended(own)
        return own

    def _append_records(self, each: effect.AppendRecords) -> None:
        own = self._proposals.pop(each.proposal_id)
        if own.base_offset != each.base_offset or own.end_offset != each.end_offset:
            raise QuorumViolation(f"a proposal at {own.base_offset} was to be appended at {each.base_offset}")
        self._applier.appended(own)

    def _refuse(self, each: effect.RefuseProposal) -> None:
        waiting = self._proposals.pop(each.proposal_id)
        if waiting.lost is None:
            raise QuorumViolation("a proposal of the leader itself was refused")
        self._refused_error = each.error
        self._outbox.append(waiting.lost)

    def _append_fetched(self, each: effect.AppendFetched) -> None:
        batches = each.batches
        data = batches[0].payload if len(batches) == 1 else b"".join(batch.payload for batch in batches)
        self._log.append_fetched(data, batches[-1].epoch)
        self.bytes_since_snapshot += len(data)

    def _truncate(self, each: effect.Truncate) -> None:
        self._log.truncate_to(each.offset)

    def _sync(self, each: effect.Sync) -> None:
        if self._syncing_now:
            return
        self._sync_number += 1
        number = self._sync_number
        self._workers.submit(self._log.begin_sync()).on_done(lambda done: self._synced(done, number))

    def _synced(self, done: Deferred[None], number: int) -> None:
        if self._closed or number != self._sync_number:
            return
        try:
            done.result()
        except Exception as error:
            self._halt(error)
            return
        self._log.finish_sync()
        self._enter(effect.Synced())

    def flush_now(self) -> None:
        """Make everything in the log durable before returning (and with it committed, for a sole voter). Blocks on the disk."""
        core = self._core
        self._syncing_now = True
        try:
            while not self._closed:
                # A worker that syncs already is not waited for: its answer is void.
                self._sync_number += 1
                self._log.begin_sync()()
                self._log.finish_sync()
                if not core.is_syncing:
                    break
                self._enter(effect.Synced())
        finally:
            self._syncing_now = False

    # Snapshots.

    def _write_chunk(self, each: effect.WriteSnapshotChunk) -> None:
        self._snapshots.write_part(each.snapshot_id, each.position, each.data)

    def _install(self, each: effect.InstallSnapshot) -> None:
        snapshot_id = each.snapshot_id
        try:
            content = self._snapshots.install_part(snapshot_id)
        except BrokenSnapshot as error:
            self._note(f"the leader's snapshot {snapshot_id} is not taken: {error}")
            self._events.appendleft(effect.SnapshotBroken(snapshot_id))
            return
        self._log.truncate_fully_and_start_at(snapshot_id.offset)
        self._snapshots.drop_older(snapshot_id)
        self.bytes_since_snapshot = 0
        self._outbox.append(partial(self._applier.load, snapshot_id, content))
        voters = VoterSet(content.voters) if content.voters else None
        self._events.appendleft(
            effect.SnapshotInstalled(snapshot_id, each.size_bytes, voters, content.kraft_version)
        )

    def write_snapshot(self, values: Sequence[bytes], end_offset: int, epoch: int) -> None:
        """A snapshot of everything below end_offset, which is applied and at a batch boundary; older log and snapshots may go.

        Any role. OSError passes through and nothing has changed.
        """
        core = self._core
        snapshot_id = OffsetAndEpoch(end_offset, epoch)
        if end_offset > self._applier.applied:
            raise ValueError(
                f"a snapshot at {end_offset} is ahead of what is applied ({self._applier.applied})"
            )
        if snapshot_id in core.log.snapshots or end_offset <= core.log.start:
            return
        voters, kraft_version = core.voters.at(end_offset)
        content = SnapshotContent(values, self._applier.last_timestamp_ms, kraft_version, voters.voters)
        data = format_snapshot(content, epoch, self._clock.now_ms())
        previous = core.log.latest_snapshot
        self._snapshots.freeze(snapshot_id, data)
        self.bytes_since_snapshot = 0
        self._enter(effect.SnapshotFrozen(snapshot_id, len(data)))
        alone = core.leader is not None and len(self.voters) == 1 and not core.leader.observers
        # Others may still fetch what the snapshot before this one does not hold.
        keep = snapshot_id if alone else previous
        if keep is not None and core.log.start < keep.offset <= core.log.durable_end:
            self._log.drop_below(keep.offset)
            self._snapshots.drop_older(keep)
            self._enter(effect.LogTrimmed(keep))

    # What is committed, who leads.

    def _advance(self, each: effect.AdvanceHighWatermark) -> None:
        self._log.set_high_watermark(each.offset)
        self._outbox.append(partial(self._apply, each.offset))

    def _apply(self, offset: int) -> None:
        try:
            self._applier.advance(offset)
        except (OSError, MetadataLogProblem) as problem:
            self._halt(problem)
            return
        if self._activation is None:
            return
        epoch, end_offset = self._activation
        if self._applier.applied >= end_offset:
            self._activation = None
            if self._core.leader is not None and self._core.epoch == epoch:
                self._machine.became_active(epoch)

    def _became_leader(self, each: effect.BecameLeader) -> None:
        self._led_epoch = each.epoch

    def _note_leader(self, each: effect.LeaderChanged) -> None:
        self._outbox.append(partial(self._leader_changed, each.epoch, each.leader_id))

    def _leader_changed(self, epoch: int, leader_id: int) -> None:
        is_mine = leader_id == self._member.node_id
        self._applier.lose(epoch - 1 if is_mine else epoch)
        self._machine.leader_changed(epoch, leader_id)

    # Proposals.

    def propose(
        self, values: Sequence[bytes], committed: Callable[[], None], lost: Callable[[], None]
    ) -> int:
        """Append framed values as one atomic batch; returns the first offset. Exactly one of the two is called, in order.

        NotLeader when this node does not lead, MetadataLogProblem when they do not fit one batch; OSError passes through and
        nothing has changed.
        """
        core = self._core
        if not self.is_leader:
            raise NotLeader(f"node {self._member.node_id} does not lead the quorum")
        now_ms = self._clock.now_ms()
        first, epoch = core.log.end, core.epoch
        batches = list(pack_values(values, first, epoch, now_ms))
        if len(batches) != 1:
            raise MetadataLogProblem(
                f"a proposal of {len(values)} records does not fit one batch of the metadata log"
            )
        # In the log before the core counts it, so that a full disk refuses a proposal instead of halting the node.
        self._log.append_batch(batches[0], epoch, now_ms)
        size = len(batches[0])
        self.bytes_since_snapshot += size
        own = Own(first, first + len(values), epoch, now_ms, None, committed, lost)
        proposal_id = self._remember(own)
        self._enter(effect.Propose(proposal_id, epoch, None, len(values), size))
        return first

    def _remember(self, own: Own) -> int:
        proposal_id = self._next_proposal_id
        self._next_proposal_id += 1
        self._proposals[proposal_id] = own
        return proposal_id

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        """Call once everything appended so far is committed, after the calls that wait already; at once if it is.

        `lost` instead when leadership ends before; at once where this node does not lead.
        """
        if not self.is_leader:
            lost()
        elif self.is_all_committed and not self._applier.is_waiting:
            call()
        else:
            end = self.next_offset
            self._applier.appended(Own(end, end, self.epoch, 0, None, call, lost))

    def upgrade_kraft_version(self, done: Callable[[ErrorCode], None]) -> None:
        """kraft.version 0 to 1. `done` gets NONE once it is committed, else why not (KIP-853)."""
        own = Own(0, 0, self.epoch)
        own.committed = partial(done, ErrorCode.NONE)
        own.lost = lambda: done(self._refused_error)
        self._refused_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._enter(effect.RaiseKraftVersion(self._remember(own)))

    # What there is to know.

    @property
    def is_leader(self) -> bool:
        return self._core.leader is not None and not self._closed

    @property
    def next_offset(self) -> int:
        return self._core.log.end

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """-1 when unknown."""
        return NO_LEADER if self._core.role is Role.RESIGNED else self._core.election.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        """() when unknown."""
        return () if self._core.role is Role.RESIGNED else self._core.leader_endpoints

    @property
    def high_watermark(self) -> int:
        """-1 when unknown."""
        return self._core.high_watermark

    @property
    def applied_offset(self) -> int:
        """Everything below has gone to the state machine."""
        return self._applier.applied

    @property
    def is_all_committed(self) -> bool:
        return self._core.high_watermark >= self._core.log.end

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not."""
        return self._core.voters.latest

    @property
    def kraft_version(self) -> int:
        return self._core.voters.kraft_version

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it; None where this node does not lead or nothing of its epoch is committed yet."""
        return leader_report(self._core, self._clock.now_ms(), self._clock.monotonic_ms())

    # The end.

    def resign(self) -> None:
        """Hand leadership on, and stay."""
        self._enter(effect.Resign())

    def shut_down(self, timeout_ms: int) -> Deferred[None]:
        """Leave gracefully: a leader resigns and tells every voter. Resolves when they know, or in time. `close` follows."""
        leaving: Deferred[None] = Deferred()
        self._leaving = leaving
        self._timers.call_after(timeout_ms, self._left)
        self._enter(effect.Resign())
        self._maybe_left()
        return leaving

    def _maybe_left(self) -> None:
        resigned = self._core.resigned
        if resigned is None or not resigned.unacknowledged:
            self._outbox.append(self._left)

    def _left(self) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.resolve(None)

    def close(self) -> None:
        """No timer, event or answer any more. The log stays open for its owner."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._events.clear()
        self._outbox.clear()


_CARRY_OUT: dict[type, Callable[[QuorumDriver, Any], None]] = {
    effect.PersistElection: QuorumDriver._persist,
    effect.AppendEpochStart: QuorumDriver._append_epoch_start,
    effect.AppendVoters: QuorumDriver._append_voters,
    effect.AppendRecords: QuorumDriver._append_records,
    effect.AppendFetched: QuorumDriver._append_fetched,
    effect.Truncate: QuorumDriver._truncate,
    effect.Sync: QuorumDriver._sync,
    effect.WriteSnapshotChunk: QuorumDriver._write_chunk,
    effect.InstallSnapshot: QuorumDriver._install,
    effect.Send: QuorumDriver._send,
    effect.Reply: QuorumDriver._reply,
    effect.ReplyWithRecords: QuorumDriver._reply_with_records,
    effect.ReplyWithSnapshot: QuorumDriver._reply_with_snapshot,
    effect.AdvanceHighWatermark: QuorumDriver._advance,
    effect.BecameLeader: QuorumDriver._became_leader,
    effect.LeaderChanged: QuorumDriver._note_leader,
    effect.ProbeVoter: QuorumDriver._probe,
    effect.RefuseProposal: QuorumDriver._refuse,
}
