"""Runs a member of the metadata quorum: it carries out the quorum core's effects on log, disk, workers and transport.

It keeps the contract of raft/quorum.py. A list of effects is carried out completely before the next event. Answers,
requests and calls of the state machine wait in an outbox until then, so a called component may enter the driver again.
It decides nothing about roles; the meaning of records is unknown here. Several proposals share one fsync: appends
during a sync wait for the next one. controller.quorum.append.linger.ms has no effect, because a batch is never held
back.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, NO_OFFSET, OffsetAndEpoch, Uuid
from kafkacompat.meters import RecentTimes
from kafkacompat.ports import Clock, Disk, LogRefused, Random, SyncFailed, Timers, Workers, is_full, passes
from kafkacompat.quota.rate import Counted
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.applier import Applier, Own
from kafkacompat.raft.contracts import (
    MetadataLog,
    MetadataLogProblem,
    NetworkChannel,
    NotLeader,
    StateMachine,
)
from kafkacompat.raft.event_pump import EventPump
from kafkacompat.raft.membership import kraft_version_refusal
from kafkacompat.raft.messages import Response
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_calls import QuorumCalls
from kafkacompat.raft.quorum_files import QuorumFiles, RoomWatch, bounded, load_quorum, read_election
from kafkacompat.raft.quorum_snapshots import LACK_AGAIN_MS, QuorumSnapshots, SnapshotWork, SnapshotWriter
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.roles import QuorumViolation, Role
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints, VoterSet
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.raft.leader_state import ReplicaState


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica as its leader sees it. -1 means unknown. Times are wall time in ms."""

    id: int
    directory_id: Uuid
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    listeners: Endpoints = ()
    """For voters only."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """The report of a leader. Its high watermark is -1 until something of its epoch is committed."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaReport, ...]
    observers: tuple[ReplicaReport, ...] = ()


def leader_report(core: QuorumCore, now_ms: int, monotonic_ms: int) -> QuorumReport | None:
    """None if the core does not lead."""
    leader = core.leader
    if leader is None:
        return None

    def wall(instant_ms: int) -> int:
        """Convert the core's monotonic time to wall time."""
        return -1 if instant_ms < 0 else now_ms - (monotonic_ms - instant_ms)

    def replica(
        node_id: int, directory_id: Uuid, known: ReplicaState | None, listeners: Endpoints
    ) -> ReplicaReport:
        if node_id == core.node_id:
            return ReplicaReport(node_id, directory_id, core.log.end, now_ms, now_ms, listeners)
        if known is None:
            return ReplicaReport(node_id, directory_id, listeners=listeners)
        return ReplicaReport(
            node_id,
            directory_id,
            known.end_offset,
            wall(known.last_fetch_ms),
            wall(known.last_caught_up_ms),
            listeners,
        )

    voters = tuple(
        replica(each.id, each.directory_id, leader.voters.get(each.id), each.listeners)
        for each in core.voters.latest.voters
    )
    observers = [
        replica(key.id, key.directory_id, each, ())
        for key, each in leader.observer_states(monotonic_ms).items()
    ]
    if not core.is_voter:
        # A leader that was removed is an observer until the removal is committed.
        observers.append(replica(core.node_id, core.member.directory_id, None, ()))
    return QuorumReport(core.node_id, core.epoch, leader.high_watermark, voters, tuple(observers))


class QuorumDriver:
    """One node's member of the quorum. Call `start` once. Everything runs in the loop's thread."""

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
        snapshot_workers: Workers | None = None,
        clock: Clock,
        timers: Timers,
        random: Random,
        static_voters: Sequence[VoterNode],
        transport: NetworkChannel,
        fail: Callable[[BaseException], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`directory` is `<metadata.log.dir>/__cluster_metadata-0`, `listener_name` the default controller listener.
        `fail` halts the node. If `snapshot_workers` are given, `workers` only sync the log."""
        self._member = member
        self._settings = settings
        self._directory = directory
        self._disk = disk
        self._files = QuorumFiles(directory, log, disk, workers, clock)
        self._clock = clock
        self._timers = timers
        self._random = random
        self._static_voters = VoterSet(static_voters)
        self._note = note
        self._pump = EventPump(clock, timers, self._carry_out, fail)
        tasks = Tasks(timers)
        self._calls = QuorumCalls(member, settings, listener_name, transport, tasks, self._pump, note)
        work = SnapshotWork(self._files.snapshots, snapshot_workers or workers, clock, tasks, note)
        self._snapshots = QuorumSnapshots(self._files, work, self._pump, note)
        self._room = RoomWatch(self._files, clock, timers, note, lambda: self._pump.enter(events.RoomFound()))
        self._led_epoch = -1
        """The epoch this node leads, as reported to the machine. -1: none."""
        self._activation: tuple[int, int] | None = None
        """(epoch, end of its first batch) until the machine is told that it is active."""
        self._leaving: Deferred[None] | None = None
        self._proposals: dict[int, Own] = {}
        """In the log, until the core has counted or refused them."""
        self._next_proposal_id = 0
        self._refused_error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def start(self, machine: StateMachine) -> None:
        """Load the disk's contents, take the stored role, set the timer. Raises MetadataLogProblem.

        The machine gets the newest snapshot before this returns. Batches follow when they are known to be committed.
        """
        self._files.sync_names()
        loaded = load_quorum(self._files.log, self._files.snapshots, self._static_voters, self._note)
        stored = read_election(self._disk, self._directory)
        self._machine = machine
        self._files.bytes_since_snapshot = loaded.bytes_since_snapshot
        self._files.batches_read = loaded.batches_since_snapshot
        self._core = core = QuorumCore(
            self._member, self._settings, self._random, loaded.shape, loaded.voters
        )
        self._calls.core = core
        high_watermark = loaded.snapshot_id.offset if loaded.snapshot_id is not None else NO_OFFSET
        self._files.log.set_high_watermark(max(high_watermark, 0))
        self._applier = Applier(self._files.log, machine, None, self._maybe_active)
        self._snapshots.begins(core, self._applier)
        if loaded.content is not None:
            self._pump.later(partial(self._applier.load, loaded.snapshot_id, loaded.content))
        self._applier.last_timestamp_ms = loaded.last_timestamp_ms
        self._pump.boot(
            core, core.boot(stored, high_watermark, self._clock.monotonic_ms()), self._name_first_leader
        )
        self._applier.later = partial(self._apply_later, 0)
        self._applier.much_later = partial(self._apply_later, LACK_AGAIN_MS)

    def _name_first_leader(self) -> None:
        core = self._core
        if core.role is Role.FOLLOWER:
            self._pump.later(partial(self._machine.leader_changed, core.epoch, core.election.leader_id))

    def _carry_out(self, effects: list[effect.Effect]) -> None:
        for place, each in enumerate(effects):
            try:
                _CARRY_OUT[type(each)](self, each)
            except OSError as error:
                if self._pump.is_starting or not self._room.holds(each, error):
                    raise
                self._pump.hold(effects[place:])
                return
            if type(each) is effect.InstallSnapshot:
                self._pump.hold(effects[place + 1 :], None)
                return
        core = self._core
        if self._led_epoch >= 0 and (core.leader is None or core.epoch != self._led_epoch):
            resigned_epoch, self._led_epoch = self._led_epoch, -1
            if core.role is Role.RESIGNED:
                self._pump.later(partial(self._leader_changed, resigned_epoch, NO_LEADER))
        if self._leaving is not None:
            self._maybe_left()

    # What a leader proposes. The batch is in the log before the core counts it, and the core answers with an effect.

    def propose(self, values: PackedValues, committed: Callable[[], None], lost: Callable[[], None]) -> int:
        """Append framed values as one atomic batch. Returns the first offset. Calls one of the two callbacks, in log order.

        Raises NotLeader, or MetadataLogProblem if the values do not fit one batch. On OSError nothing has changed.
        """
        core = self._core
        if not self.is_leader:
            raise NotLeader(f"node {core.node_id} does not lead the quorum")
        if self._pump.is_held:
            raise OSError(errno.ENOSPC, "the metadata log waits for room")
        first, epoch = core.log.end, core.epoch
        # Append before the core counts the batch, so that a full disk refuses a proposal and does not halt the node.
        try:
            own = self._files.append_proposal(values, first, epoch)
        except Exception as problem:
            refused = isinstance(problem, (OSError, LogRefused, MetadataLogProblem))
            if not refused or isinstance(problem, SyncFailed):
                self._pump.halt(problem)
            raise
        own.committed, own.lost = self._files.timed(committed), lost
        self._pump.enter(events.Propose(self._remember(own), epoch, None, values.count, own.size_bytes))
        return first

    def _remember(self, own: Own) -> int:
        proposal_id = self._next_proposal_id
        self._next_proposal_id += 1
        self._proposals[proposal_id] = own
        return proposal_id

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        """Call it once everything appended so far is committed, after earlier calls; at once if it already is.

        `lost` is called instead if the leadership ends first, and at once if this node does not lead.
        """
        if not self.is_leader:
            lost()
        elif self.is_all_committed and not self._applier.is_waiting:
            call()
        else:
            end = self.next_offset
            self._applier.appended(Own(end, end, self.epoch, committed=call, lost=lost))

    def upgrade_kraft_version(self, done: Callable[[ErrorCode], None]) -> None:
        """Raise kraft.version from 0 to 1. `done` gets NONE once it is committed, otherwise the error (KIP-853)."""
        own = Own(0, 0, self.epoch)
        own.committed = partial(done, ErrorCode.NONE)
        own.lost = lambda: done(self._refused_error)
        self._refused_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._pump.enter(events.RaiseKraftVersion(self._remember(own)))

    def _append_voters(self, each: effect.AppendVoters) -> None:
        own = self._files.append_voters(each)
        waiting = self._proposals.pop(each.proposal_id, None)
        if waiting is not None:
            own.committed, own.lost = waiting.committed, waiting.lost
        self._applier.appended(own)

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
        self._pump.later(waiting.lost)

    # Requests of others and answers to ours.

    def handle(self, message: Any, api_version: int, listener: str | None = None) -> Deferred[Any]:
        """Answer Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata topic, and Add-, Remove-
        and UpdateRaftVoter, as wire messages with Kafka's errors. `listener` (the default one): where it came in."""
        return self._calls.receive(message, api_version, listener)

    def _send(self, each: effect.Send) -> None:
        self._pump.later(partial(self._calls.send, each))

    def _probe(self, each: effect.ProbeVoter) -> None:
        self._pump.later(partial(self._calls.probe, each))

    def _answer(self, request_id: int, response: Response, records: Any = b"") -> None:
        self._pump.later(partial(self._calls.answer, request_id, response, records))

    def _reply(self, each: effect.Reply) -> None:
        self._answer(each.request_id, each.response)

    def _reply_with_records(self, each: effect.ReplyWithRecords) -> None:
        self._answer(each.request_id, each.response, self._files.read(each.offset, bounded(each.max_bytes)))

    def _reply_with_snapshot(self, each: effect.ReplyWithSnapshot) -> None:
        response = each.response
        response.data = self._files.snapshots.read_piece(
            response.snapshot_id, response.position, bounded(each.max_bytes)
        )
        self._answer(each.request_id, response)

    # Files.

    def _persist(self, each: effect.PersistElection) -> None:
        self._files.persist(each.state, self._core.voters.kraft_version)

    def _append_epoch_start(self, each: effect.AppendEpochStart) -> None:
        self._activation = (each.epoch, each.end_offset)
        self._applier.appended(self._files.append_epoch_start(each))

    def _append_fetched(self, each: effect.AppendFetched) -> None:
        self._files.append_fetched(each)

    def _truncate(self, each: effect.Truncate) -> None:
        self._files.log.truncate_to(each.offset)

    def _sync(self, each: effect.Sync) -> None:
        self._files.sync(self._synced)

    def _synced(self, error: BaseException | None) -> None:
        if self._pump.is_closed:
            return
        if passes(error) or is_full(error):
            # The sync could not begin, so nothing of it was reported and lost.
            self._timers.call_after(LACK_AGAIN_MS, lambda: self._pump.guarded(self._sync_again))
        elif error is not None:
            self._pump.halt(error)
        else:
            self._pump.enter(events.Synced())

    def _sync_again(self) -> None:
        if self._core.is_syncing:
            try:
                self._files.sync(self._synced)
            except OSError as error:
                if not (passes(error) or is_full(error)):
                    raise
                self._synced(error)

    def flush_now(self) -> None:
        """Make the whole log durable before returning (for a sole voter that also commits it). Blocks on the disk."""
        files = self._files
        files.syncs_at_once = True
        try:
            while not self._pump.is_closed and not self._pump.is_held:
                files.sync_now()
                if not self._core.is_syncing:
                    break
                self._pump.enter(events.Synced())
        finally:
            files.syncs_at_once = False

    # Snapshots.

    def _write_chunk(self, each: effect.WriteSnapshotChunk) -> None:
        self._files.snapshots.write_part(each.snapshot_id, each.position, each.data)

    def _install(self, each: effect.InstallSnapshot) -> None:
        self._snapshots.install(each)

    def begin_snapshot(self, end_offset: int, epoch: int) -> SnapshotWriter | None:
        """Begin a snapshot of everything below end_offset, which must be an applied batch boundary; older log may then go.

        In any role. None if the snapshot exists, another one is in progress, or one could not be written a moment ago.
        """
        return self._snapshots.begin(OffsetAndEpoch(end_offset, epoch))

    # The high watermark and the leader.

    def _advance(self, each: effect.AdvanceHighWatermark) -> None:
        self._files.log.set_high_watermark(each.offset)
        self._pump.later(partial(self._applier.advance, each.offset, is_first=each.is_first))

    def _apply_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._timers.call_after(delay_ms, lambda: self._pump.guarded(call))

    def _maybe_active(self) -> None:
        """Activate the machine if the log from the start of the leadership is applied."""
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
        self._pump.later(partial(self._leader_changed, each.epoch, each.leader_id))

    def _leader_changed(self, epoch: int, leader_id: int) -> None:
        is_mine = leader_id == self._member.node_id
        self._applier.lose(epoch - 1 if is_mine else epoch)
        self._machine.leader_changed(epoch, leader_id)

    # The end.

    def resign(self) -> None:
        """Give up the leadership, and stay in the quorum."""
        self._pump.enter(events.Resign())

    def resign_for_room(self, size_bytes: int, error: OSError) -> bool:
        """The log refused a proposal of this size: give up the leadership, and stand for no election until there is space.

        Returns False for a sole voter, which remains the leader.
        """
        if self.voters.ids == (self._member.node_id,):
            return False
        self._room.wait(size_bytes, error)
        self._pump.enter(events.Resign(until_room=True))
        return True

    def shut_down(self, timeout_ms: int) -> Deferred[None]:
        """Leave gracefully: a leader resigns and tells all voters. Resolves at their answers or the timeout; then `close`.

        A sole voter remains the leader until it is closed.
        """
        if self.voters.ids == (self._member.node_id,):
            return Deferred.of(None)
        leaving: Deferred[None] = Deferred()
        self._leaving = leaving
        self._timers.call_after(timeout_ms, self._left)
        self._pump.enter(events.Resign())
        self._maybe_left()
        return leaving

    def _maybe_left(self) -> None:
        resigned = self._core.resigned
        if resigned is None or not resigned.unacknowledged:
            self._pump.later(self._left)

    def _left(self) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.resolve(None)

    def close(self) -> None:
        """Stop timers, events and answers. The log stays open for its owner."""
        self._pump.close()
        self._room.is_closed = True
        self._snapshots.close()

    # What is known of the quorum now.

    @property
    def is_leader(self) -> bool:
        return self._core.leader is not None and not self._pump.is_closed

    @property
    def next_offset(self) -> int:
        return self._core.log.end

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """-1 if unknown."""
        return NO_LEADER if self._core.role is Role.RESIGNED else self._core.election.leader_id

    @property
    def state_name(self) -> str:
        """The role's name in Kafka's metric current-state. The JMX exporter drops everything after a hyphen."""
        core = self._core
        if core.role is Role.FOLLOWER and not core.is_voter:
            return "observer"
        return "unattached" if core.role is Role.RESIGNED else core.role.value

    @property
    def voted_id(self) -> int:
        """The candidate this member voted for in the epoch. -1: none. A leader and a candidate vote for themselves."""
        core = self._core
        return core.node_id if core.role in (Role.LEADER, Role.CANDIDATE) else core.election.voted_id

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch in the log."""
        return self._core.log.last_epoch

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the last applied batch."""
        return self._applier.last_timestamp_ms

    @property
    def observer_count(self) -> int | None:
        """None if this node does not lead."""
        leader = self._core.leader
        return None if leader is None else len(leader.observer_states(self._clock.monotonic_ms()))

    @property
    def leader_endpoints(self) -> Endpoints:
        """() if unknown."""
        return () if self._core.role is Role.RESIGNED else self._core.leader_endpoints

    @property
    def high_watermark(self) -> int:
        """-1 if unknown."""
        return self._core.high_watermark

    @property
    def has_caught_up(self) -> bool:
        """Whether everything is applied that a leader has called committed when this node first heard of it. Older
        images come from this node's own disk, and others may know better."""
        return NO_OFFSET < self._core.first_high_watermark <= self._applier.applied

    @property
    def applied_offset(self) -> int:
        """Everything below was passed to the state machine."""
        return self._applier.applied

    @property
    def is_all_committed(self) -> bool:
        return self._core.high_watermark >= self._core.log.end

    @property
    def is_held(self) -> bool:
        """Whether a step waits until its effects can be carried out, for example written."""
        return self._pump.is_held

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not."""
        return self._core.voters.latest

    @property
    def kraft_version(self) -> int:
        return self._core.voters.kraft_version

    @property
    def kraft_version_refusal(self) -> ErrorCode:
        """The error that prevents raising kraft.version now. NONE if it can be raised."""
        return kraft_version_refusal(self._core)

    @property
    def bytes_since_snapshot(self) -> int:
        return self._files.bytes_since_snapshot

    @property
    def ms_since_snapshot(self) -> int:
        """Since this node has written one. Before that, since its start, and longer for what the start had to read."""
        return self._files.ms_since_snapshot

    @property
    def commit_times(self) -> RecentTimes:
        """From the append of a proposal until it is committed."""
        return self._files.commit_times

    @property
    def election_times(self) -> RecentTimes:
        """From when this node stood for election, the last time, until there was a leader."""
        return self._core.election_times

    @property
    def is_changing_voters(self) -> bool | None:
        """Whether a voter is being added or removed. None if this node does not lead."""
        leader = self._core.leader
        return None if leader is None else leader.change is not None

    @property
    def appended(self) -> Counted:
        """Records that this node has appended as the leader."""
        return self._files.appended

    @property
    def fetched(self) -> Counted:
        """Records that it has taken from a leader."""
        return self._files.fetched

    def snapshot_written_last(self) -> tuple[int, int]:
        """Size and age in ms of the last snapshot that this node has written since its start."""
        return self._files.snapshot_written_last()

    def report(self) -> QuorumReport | None:
        """The quorum as its leader sees it. None if this node does not lead."""
        return leader_report(self._core, self._clock.now_ms(), self._clock.monotonic_ms())


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
