"""One member of the metadata quorum, voter or observer: events in, effects out.

Pure and synchronous: no clock, no file, no socket; `step(event, now_ms)` with a monotonic time in ms, and chance through the Random
port. Knows no record's meaning and no wire version. Follows KRaft (KIP-595, KIP-630, KIP-853, KIP-996) as Kafka 4.3 runs it.

The contract of a step, which the shell keeps and the simulator checks: the effects of one call are carried out in the order given,
all of them, before the next event is entered.
  persist  PersistElection is durable (written, fsynced, renamed) before any later effect of the list; votes and epochs are on disk
           before anyone hears of them.
  append   AppendEpochStart, AppendVoters, AppendRecords, AppendFetched and Truncate change the log at once, though not durably; the
           core has already counted them in `log`.
  send     Send, Reply and its kin leave only then. Sync starts an fsync of all that has been appended and returns; Synced is
           entered when it is done, and only then does the node count for it: a leader in the high watermark, a follower by
           its next fetch.
  apply    AdvanceHighWatermark: what lies below may be applied to the state machine.
  advance  after the list the shell sets its timer to `wake_ms` and may enter the next event; Tick when the time has come.
InstallSnapshot is carried out whole (freeze, truncate), and SnapshotInstalled (or SnapshotBroken) is the very next event.
A crash between any two effects is safe. QuorumViolation and ValueError out of step mean: halt the node, keep the files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.ids import NO_LEADER
from kafkacompat.raft import effects as effect
from kafkacompat.raft import elections, events, following, leading, membership
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.epoch_election import EpochElection
from kafkacompat.raft.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    RaftVoterResponse,
    RemoveRaftVoterRequest,
    Response,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import NomineeState, Role, UnattachedState
from kafkacompat.wire.errors import ErrorCode

REFUSED_STEP_MS = 100
"""Between two followers' candidacies when the leader's process is seen to be gone: time for an election."""


class QuorumCore(QuorumState):
    """`boot` once, then `step` for ever; `wake_ms` says when a Tick is due."""

    wake_ms = 0

    def boot(self, stored: ElectionState | None, high_watermark: int, now_ms: int) -> list[effect.Effect]:
        """`stored` is the quorum-state file's; `high_watermark` the end of the newest snapshot, -1 without one."""
        self.now_ms = now_ms
        self.high_watermark = high_watermark
        election = stored if stored is not None else ElectionState(voters=self.voters.latest.ids)
        if election.leader_epoch < self.log.last_epoch:
            self.persist(ElectionState(self.log.last_epoch, voters=self.voters.latest.ids))
            election = self.election
        self.election = election
        self.unattached = UnattachedState(self.election_deadline_ms())
        endpoints = self.voters.latest.endpoints(election.leader_id)
        if election.leader_id == self.node_id:
            # Never leader again in this epoch: what was lost unsynced must not be written anew under the same offsets.
            self.role = Role.RESIGNED
            self.leader_endpoints = self.member.endpoints
            self.resign(())
        elif (election.voted_id, election.voted_directory_id) == self.key and (
            election.leader_id == NO_LEADER and self.is_voter
        ):
            self.role = Role.CANDIDATE
            self.nominee = NomineeState(
                self.election_deadline_ms(), EpochElection(self.voters.latest, self.node_id)
            )
        elif election.leader_id >= 0 and endpoints:
            self.role = Role.FOLLOWER
            self.leader_endpoints = endpoints
            self.follow(election.leader_id, endpoints)
        if len(self.voters.latest) == 1 and self.is_voter:
            self._stand_alone()
        self._poll()
        return self._take()

    def _stand_alone(self) -> None:
        """A sole voter does not wait."""
        if self.role is not Role.CANDIDATE:
            self.become_prospective()

    def step(self, event: events.Event, now_ms: int) -> list[effect.Effect]:
        """Never in the past: a clock that went back counts as standing still."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        _EVENTS[type(event)](self, event)
        self._poll()
        return self._take()

    def _take(self) -> list[effect.Effect]:
        effects = self.effects
        self.effects = []
        return effects

    def _poll(self) -> None:
        """Do what is due in the present role; a change of role makes other things due."""
        while True:
            role = self.role
            if role is Role.FOLLOWER:
                wake_ms = following.poll_follower(self)
            elif role is Role.LEADER:
                wake_ms = leading.poll_leader(self)
            elif role is Role.UNATTACHED:
                wake_ms = following.poll_unattached(self)
            elif role is Role.RESIGNED:
                wake_ms = elections.poll_resigned(self)
            elif leading.maybe_transition_to_leader(self):
                wake_ms = -1
            else:
                wake_ms = elections.poll_nominee(self)
            if wake_ms >= 0:
                self.wake_ms = wake_ms
                return

    # Events.

    def _request_received(self, event: events.RequestReceived) -> None:
        _REQUESTS[type(event.request)](self, event.request_id, event.request)

    def _response_received(self, event: events.ResponseReceived) -> None:
        taken = self.request_manager.on_response(event.correlation_id)
        if taken is None:
            return
        node_id, request = taken
        role, epoch = self.role, self.epoch
        ok = self._handle_response(node_id, request, event.response)
        discovery_failed = node_id < NO_LEADER and self.follower is None
        if (not ok or discovery_failed) and (role, epoch) == (self.role, self.epoch):
            self.request_manager.back_off(node_id, self.now_ms)

    def _handle_response(self, node_id: int, request: Any, response: Response) -> bool:
        """False when the peer is to be asked again later: also for an answer to another question."""
        kind = type(response)
        asked = type(request)
        if kind is FetchResponse and asked is FetchRequest:
            return following.handle_fetch_response(self, node_id, request, response)  # type: ignore[arg-type]
        if kind is VoteResponse and asked is VoteRequest:
            return elections.handle_vote_response(self, node_id, request, response)  # type: ignore[arg-type]
        if kind is FetchSnapshotResponse and asked is FetchSnapshotRequest:
            return following.handle_fetch_snapshot_response(self, request, response)  # type: ignore[arg-type]
        if kind is QuorumEpochResponse and asked in (BeginQuorumEpochRequest, EndQuorumEpochRequest):
            return elections.handle_epoch_response(self, node_id, response)  # type: ignore[arg-type]
        if isinstance(response, RaftVoterResponse) and asked is UpdateRaftVoterRequest:
            outcome = elections.maybe_handle_common_response(
                self, response.error, response.epoch, response.leader_id, response.leader_endpoints
            )
            return outcome is not elections.CommonOutcome.FAILED
        # A node that joins by itself asks again in time, whatever the leader said.
        return asked is AddRaftVoterRequest or asked is RemoveRaftVoterRequest

    def _request_failed(self, event: events.RequestFailed) -> None:
        taken = self.request_manager.on_response(event.correlation_id)
        if taken is None:
            return
        node_id, request = taken
        self.request_manager.back_off(node_id, self.now_ms)
        if event.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(request, VoteRequest):
            elections.handle_vote_unsupported(self, request)
        if self.follower is not None and isinstance(request, FetchSnapshotRequest):
            self.follower.download = None

    def _peer_refused(self, event: events.PeerRefused) -> None:
        """Counts as an expired fetch timeout; the pre-vote that follows still asks whether others hear the leader.

        All followers see it at the same instant. They stand one after another, by id, or their votes would split and cost an
        election timeout; and from here on they grant a pre-vote.
        """
        follower = self.follower
        if follower is None or follower.leader_id != event.node_id or not self.stands:
            return
        place = sum(1 for each in self.voters.latest.ids if each < self.node_id and each != event.node_id)
        wait_ms = min(place * REFUSED_STEP_MS, self.settings.election_timeout_ms)
        follower.deadline_ms = min(follower.deadline_ms, self.now_ms + wait_ms)
        follower.has_fetched = False

    def _synced(self, event: events.Synced) -> None:
        self.sync_done()
        if self.leader is not None:
            leading.maybe_update_leader_high_watermark(self, self.leader)
        if self.log.durable_end < self.log.end and (self.leader is not None or self.member.can_vote):
            self.ask_sync()

    def _propose(self, event: events.Propose) -> None:
        leading.propose(self, event)

    def _snapshot_frozen(self, event: events.SnapshotFrozen) -> None:
        if event.snapshot_id.offset > self.high_watermark:
            raise ValueError(f"a snapshot at {event.snapshot_id.offset} is above the high watermark")
        if event.snapshot_id.offset >= self.log.start:
            # Else it was written while the leader's own, which is newer, was put in place, and went with the older ones.
            self.log.snapshots[event.snapshot_id] = event.size_bytes

    def _log_trimmed(self, event: events.LogTrimmed) -> None:
        self.log.trim(event.snapshot_id)
        self.voters.truncate_old_entries(event.snapshot_id.offset)

    def _snapshot_installed(self, event: events.SnapshotInstalled) -> None:
        following.snapshot_installed(self, event)

    def _snapshot_broken(self, event: events.SnapshotBroken) -> None:
        if self.follower is not None:
            self.follower.download = None
            self.request_manager.back_off(self.follower.leader_id, self.now_ms)

    def _resign(self, event: events.Resign) -> None:
        if self.role is Role.LEADER:
            self.has_room = not event.until_room
            self.become_resigned()

    def _room_found(self, event: events.RoomFound) -> None:
        self.has_room = True
        if self.role is Role.UNATTACHED:
            self.unattached.deadline_ms = self.election_deadline_ms()

    def _voter_probed(self, event: events.VoterProbed) -> None:
        if membership.voter_probed(self, event):
            self._grown()

    def _raise_kraft_version(self, event: events.RaiseKraftVersion) -> None:
        if membership.raise_kraft_version(self, event):
            self._grown()

    def _grown(self) -> None:
        if self.leader is not None:
            leading.appended(self, self.leader)

    def _tick(self, event: events.Tick) -> None:
        """What is due is done by `_poll`."""

    def _remove_voter(self, request_id: int, request: RemoveRaftVoterRequest) -> None:
        if membership.handle_remove_voter_request(self, request_id, request):
            self._grown()

    def _update_voter(self, request_id: int, request: UpdateRaftVoterRequest) -> None:
        if membership.handle_update_voter_request(self, request_id, request):
            self._grown()


_EVENTS: dict[type, Callable[[QuorumCore, Any], None]] = {
    events.Tick: QuorumCore._tick,
    events.RequestReceived: QuorumCore._request_received,
    events.ResponseReceived: QuorumCore._response_received,
    events.RequestFailed: QuorumCore._request_failed,
    events.PeerRefused: QuorumCore._peer_refused,
    events.Propose: QuorumCore._propose,
    events.Synced: QuorumCore._synced,
    events.SnapshotFrozen: QuorumCore._snapshot_frozen,
    events.LogTrimmed: QuorumCore._log_trimmed,
    events.SnapshotInstalled: QuorumCore._snapshot_installed,
    events.SnapshotBroken: QuorumCore._snapshot_broken,
    events.Resign: QuorumCore._resign,
    events.RoomFound: QuorumCore._room_found,
    events.RaiseKraftVersion: QuorumCore._raise_kraft_version,
    events.VoterProbed: QuorumCore._voter_probed,
}

_REQUESTS: dict[type, Callable[[QuorumCore, int, Any], None]] = {
    VoteRequest: elections.handle_vote_request,
    BeginQuorumEpochRequest: elections.handle_begin_quorum_epoch_request,
    EndQuorumEpochRequest: elections.handle_end_quorum_epoch_request,
    FetchRequest: leading.handle_fetch_request,
    FetchSnapshotRequest: leading.handle_fetch_snapshot_request,
    AddRaftVoterRequest: membership.handle_add_voter_request,
    RemoveRaftVoterRequest: QuorumCore._remove_voter,
    UpdateRaftVoterRequest: QuorumCore._update_voter,
}
