"""One simulated quorum node: a pure core, its disk, its clock, and the shell that carries out effects between them.

It does the shell's work by the contract of raft/quorum.py, and can crash between any two effects. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kafkacompat.ids import NO_OFFSET
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.messages import Batch, Request, Response
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_state import Member
from kafkacompat.raft.roles import NEVER_MS
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.counters import QuorumCounters
from kafkacompat.sim.quorum_disk import QuorumDisk
from kafkacompat.sim.quorum_options import Options
from kafkacompat.sim.quorum_oracles import QuorumOracles
from kafkacompat.sim.scheduler import Scheduler
from kafkacompat.wire.errors import ErrorCode

CONTROL_BYTES = 100
REFUSAL_US = 1_000
"""A refused connection returns about as fast as possible."""

Core = Callable[..., QuorumCore]


class QuorumEnvironment(Protocol):
    """What a node has in common with the others of its run, and what is around it."""

    @property
    def options(self) -> Options: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def counters(self) -> QuorumCounters: ...

    @property
    def oracles(self) -> QuorumOracles: ...

    def stepped(self, node: SimulatedNode, event: events.Event, effects: list[effect.Effect]) -> None:
        """The core has taken an event. Its effects are to be carried out."""

    def crash_node(self, node: SimulatedNode) -> None: ...

    def resume_later(self, node: SimulatedNode) -> None: ...

    def draw_sync_us(self) -> int: ...

    def proposal_appended(self, proposal_id: int, batch: Batch) -> None: ...

    def deliver_request(
        self, source: SimulatedNode, target: int, correlation_id: int, request: Request
    ) -> None: ...

    def deliver_response(
        self, source: SimulatedNode, target: int, message: tuple[int, int, Response]
    ) -> None: ...

    def deliver_probe(self, source: SimulatedNode, voter: ReplicaKey) -> None: ...

    def refuse(self, refusing: int, target: int, life: int, correlation_id: int) -> None: ...


class SimulatedNode:
    def __init__(
        self,
        environment: QuorumEnvironment,
        member: Member,
        static_voters: VoterSet,
        kraft_version: int,
        make_core: Core,
        chance: Chance,
    ) -> None:
        self.environment = environment
        self.member = member
        self.id = member.node_id
        self.static_voters = static_voters
        self.kraft_version = kraft_version
        self.make_core = make_core
        self.chance = chance
        self.disk = QuorumDisk()
        self.core: QuorumCore | None = None
        """None while the node is down."""
        self.life = 0
        """Counts starts: messages and timers of an earlier life are ignored."""
        self.is_paused = False
        self._inbox: list[events.Event] = []
        self._next_event: events.Event | None = None
        """Handled before any other event."""
        self.effects_until_crash = -1
        """The number of effects of the next step that are carried out before a crash. -1: no crash in this step."""
        self.effects_until_full = -1
        """The number of effects of the next step that are carried out before the disk is full; the rest must wait. -1: all."""
        self._held: list[effect.Effect] = []
        self.clock_rate = 1.0
        self._clock_zero_us = 0
        self._clock_base_ms = 1_000_000
        self._tick_at_ms = NEVER_MS
        self._requests: dict[int, tuple[int, int, int, Request]] = {}
        """Request id -> (source, its life, its correlation id, request)."""
        self._next_request_id = 0
        self.applied = 0
        """Everything below this offset was passed to the state machine."""

    # Clock.

    def local_ms(self) -> int:
        elapsed_us = self.environment.scheduler.now_us - self._clock_zero_us
        return self._clock_base_ms + int(elapsed_us * self.clock_rate / 1000)

    def set_clock_rate(self, rate: float) -> None:
        self._clock_base_ms = self.local_ms()
        self._clock_zero_us = self.environment.scheduler.now_us
        self.clock_rate = rate

    def _plan_tick(self, core: QuorumCore) -> None:
        """Plan a tick. An earlier planned tick stays, and plans the next one when it occurs."""
        wake_ms = core.wake_ms
        if wake_ms >= self._tick_at_ms:
            return
        self._tick_at_ms = wake_ms
        delay_us = int((wake_ms - self.local_ms()) * 1000 / self.clock_rate) + 1000
        self.environment.scheduler.after(max(delay_us, 1), self._tick, (self.life, wake_ms))

    def _tick(self, planned: tuple[int, int]) -> None:
        life, wake_ms = planned
        core = self.core
        if life != self.life or wake_ms != self._tick_at_ms or core is None:
            return
        self._tick_at_ms = NEVER_MS
        if self.local_ms() < core.wake_ms:
            self._plan_tick(core)
        else:
            self.enter(events.Tick())

    # Life.

    def start(self) -> None:
        self.life += 1
        shape = self.disk.open()
        history = self.disk.voter_history(self.static_voters, self.kraft_version)
        settings = self.environment.options.settings
        core = self.make_core(self.member, settings, self.chance, shape, history)
        self.core = core
        newest = max(self.disk.snapshots, default=None)
        high_watermark = newest.offset if newest is not None else NO_OFFSET
        self.applied = max(high_watermark, 0)
        self._tick_at_ms = NEVER_MS
        self.environment.oracles.started(self, core)
        effects = core.boot(self.disk.election, high_watermark, self.local_ms())
        self._carry_out(core, effects)

    def crash(self) -> None:
        """Power off: memory and data that were not synced are lost."""
        self.core = None
        self.is_paused = False
        self.life += 1
        self._inbox.clear()
        self._requests.clear()
        self._held = []
        self.effects_until_crash = -1
        self.effects_until_full = -1
        self._next_event = None
        lost = self.disk.crash(self.chance, self.environment.options.keeps_writing)
        self.environment.counters.crashes += 1
        self.environment.counters.lost_bytes += lost

    def resume(self) -> None:
        if not self.is_paused:
            return
        self.is_paused = False
        held, self._held = self._held, []
        if held and self.core is not None:
            self._carry_out(self.core, held)
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            self.enter(event)

    def enter(self, event: events.Event) -> None:
        core = self.core
        if core is None:
            return
        if self.is_paused:
            self._inbox.append(event)
            return
        effects = core.step(event, self.local_ms())
        self.environment.stepped(self, event, effects)
        self._carry_out(core, effects)

    def _carry_out(self, core: QuorumCore, effects: list[effect.Effect]) -> None:
        limit = self.effects_until_crash
        if limit >= 0:
            self.effects_until_crash = -1
            if limit < len(effects):
                for each in effects[:limit]:
                    _CARRY_OUT[type(each)](self, each)
                self.environment.counters.crashes_in_step += 1
                self.environment.crash_node(self)
                return
        limit = self.effects_until_full
        if limit >= 0:
            self.effects_until_full = -1
            if limit < len(effects):
                self._held = effects[limit:]
                self.is_paused = True
                effects = effects[:limit]
                self.environment.counters.held_steps += 1
                self.environment.resume_later(self)
        for each in effects:
            _CARRY_OUT[type(each)](self, each)
        if self._held:
            return
        if self._next_event is not None:
            event, self._next_event = self._next_event, None
            self.enter(event)
            return
        self.environment.oracles.stepped(self, core)
        self._plan_tick(core)

    # Messages.

    def request_arrives(self, message: tuple[int, int, int, Request]) -> None:
        source, life, correlation_id, request = message
        if self.core is None:
            if self.environment.options.refuses:
                self.environment.refuse(self.id, source, life, correlation_id)
            return
        request_id = self._next_request_id
        self._next_request_id = request_id + 1
        self._requests[request_id] = message
        self.enter(events.RequestReceived(request_id, request))

    def response_arrives(self, message: tuple[int, int, Response]) -> None:
        life, correlation_id, response = message
        if life == self.life:
            self.enter(events.ResponseReceived(correlation_id, response))

    def refusal_arrives(self, message: tuple[int, int, int]) -> None:
        life, correlation_id, refusing_id = message
        if life == self.life:
            self.enter(events.RequestFailed(correlation_id, ErrorCode.BROKER_NOT_AVAILABLE))
            self.enter(events.PeerRefused(refusing_id))

    def ask(self, request: Request) -> None:
        """Handle an administrator's request. Its answer is ignored."""
        request_id = self._next_request_id
        self._next_request_id = request_id + 1
        self.enter(events.RequestReceived(request_id, request))

    def _send(self, each: effect.Send) -> None:
        self.environment.oracles.sends(self, each)
        target = each.node_id if each.node_id >= 0 else each.endpoints[0][2]
        self.environment.deliver_request(self, target, each.correlation_id, each.request)

    def _answer(self, request_id: int, response: Response) -> None:
        asked = self._requests.pop(request_id, None)
        if asked is None:
            return
        source, life, correlation_id, request = asked
        self.environment.oracles.replies(self, request, response)
        self.environment.deliver_response(self, source, (life, correlation_id, response))

    def _reply(self, each: effect.Reply) -> None:
        self._answer(each.request_id, each.response)

    def _reply_with_records(self, each: effect.ReplyWithRecords) -> None:
        each.response.records = self.disk.read(each.offset, each.max_bytes)
        self._answer(each.request_id, each.response)

    def _reply_with_snapshot(self, each: effect.ReplyWithSnapshot) -> None:
        response = each.response
        data = self.disk.snapshots[response.snapshot_id].data
        response.data = data[response.position : response.position + each.max_bytes]
        self._answer(each.request_id, response)

    # QuorumDisk.

    def _persist(self, each: effect.PersistElection) -> None:
        self.environment.oracles.persists(self, each.state)
        self.disk.election = each.state

    def _append_epoch_start(self, each: effect.AppendEpochStart) -> None:
        batch = Batch(
            each.base_offset,
            each.end_offset,
            each.epoch,
            ("leader change", each.leader_id),
            CONTROL_BYTES,
            each.voters,
            each.kraft_version,
        )
        self._append_own(batch)

    def _append_voters(self, each: effect.AppendVoters) -> None:
        self._append_own(
            Batch(
                each.base_offset,
                each.end_offset,
                each.epoch,
                ("voters", each.voters.ids),
                CONTROL_BYTES,
                each.voters,
                each.kraft_version,
            )
        )
        if each.proposal_id >= 0:
            self.environment.counters.upgrades += 1
        else:
            self.environment.counters.voter_changes += 1

    def _append_records(self, each: effect.AppendRecords) -> None:
        name, size = each.payload
        batch = Batch(each.base_offset, each.end_offset, each.epoch, name, size)
        self._append_own(batch)
        self.environment.proposal_appended(each.proposal_id, batch)

    def _append_own(self, batch: Batch) -> None:
        self.environment.oracles.leader_appends(self, batch)
        self.disk.append(batch)

    def _append_fetched(self, each: effect.AppendFetched) -> None:
        for batch in each.batches:
            self.disk.append(batch)

    def _truncate(self, each: effect.Truncate) -> None:
        self.environment.oracles.truncates(self, each.offset)
        self.disk.truncate(each.offset)
        self.environment.counters.truncations += 1

    def _sync(self, each: effect.Sync) -> None:
        self.disk.begin_sync()
        self.environment.scheduler.after(self.environment.draw_sync_us(), self._synced, self.life)

    def _synced(self, life: int) -> None:
        if life == self.life:
            self.disk.finish_sync()
            self.enter(events.Synced())

    def _write_chunk(self, each: effect.WriteSnapshotChunk) -> None:
        self.disk.write_part(each.position, each.data)

    def _install(self, each: effect.InstallSnapshot) -> None:
        snapshot = self.environment.oracles.read_snapshot(self, each.snapshot_id, self.disk.take_part())
        self.disk.install(each.snapshot_id, snapshot)
        self.applied = each.snapshot_id.offset
        self.environment.counters.snapshots_fetched += 1
        installed = events.SnapshotInstalled(
            each.snapshot_id, each.size_bytes, snapshot.voters, snapshot.kraft_version
        )
        # The remaining effects of this list come first.
        self._next_event = installed

    def _advance(self, each: effect.AdvanceHighWatermark) -> None:
        self.environment.oracles.commits(self, each.offset)

    def _became_leader(self, each: effect.BecameLeader) -> None:
        self.environment.oracles.leads(self, each.epoch)

    def _leader_changed(self, each: effect.LeaderChanged) -> None:
        self.environment.oracles.names_leader(self, each.epoch, each.leader_id)

    def _probe(self, each: effect.ProbeVoter) -> None:
        self.environment.deliver_probe(self, each.voter)

    def _refused(self, each: effect.RefuseProposal) -> None:
        self.environment.counters.refused_proposals += 1

    def make_snapshot(self) -> None:
        """Make a snapshot of everything that the state machine has applied."""
        core = self.core
        if core is None or self.is_paused or core.high_watermark <= max(core.log.start, 0):
            return
        snapshot_id, snapshot = self.environment.oracles.snapshot_of(self, core)
        if snapshot_id in self.disk.snapshots or snapshot_id.offset != core.high_watermark:
            return
        self.disk.freeze(snapshot_id, snapshot)
        self.environment.counters.snapshots_made += 1
        self.enter(events.SnapshotFrozen(snapshot_id, len(snapshot.data)))
        if self.chance.happens(0.6) and snapshot_id.offset <= self.disk.durable_end:
            self.disk.trim(snapshot_id)
            self.enter(events.LogTrimmed(snapshot_id))


_CARRY_OUT: dict[type, Callable[[SimulatedNode, Any], None]] = {
    effect.PersistElection: SimulatedNode._persist,
    effect.AppendEpochStart: SimulatedNode._append_epoch_start,
    effect.AppendVoters: SimulatedNode._append_voters,
    effect.AppendRecords: SimulatedNode._append_records,
    effect.AppendFetched: SimulatedNode._append_fetched,
    effect.Truncate: SimulatedNode._truncate,
    effect.Sync: SimulatedNode._sync,
    effect.WriteSnapshotChunk: SimulatedNode._write_chunk,
    effect.InstallSnapshot: SimulatedNode._install,
    effect.Send: SimulatedNode._send,
    effect.Reply: SimulatedNode._reply,
    effect.ReplyWithRecords: SimulatedNode._reply_with_records,
    effect.ReplyWithSnapshot: SimulatedNode._reply_with_snapshot,
    effect.AdvanceHighWatermark: SimulatedNode._advance,
    effect.BecameLeader: SimulatedNode._became_leader,
    effect.LeaderChanged: SimulatedNode._leader_changed,
    effect.ProbeVoter: SimulatedNode._probe,
    effect.RefuseProposal: SimulatedNode._refused,
}
