"""One member of the metadata quorum, voter or observer: events in, effects out.

Pure and synchronous, without clock, file or socket. `step(event, now_ms)` takes a monotonic time in ms; random numbers
come from the Random port. The meaning of records and protocol versions are unknown here. Follows KRaft (KIP-595,
KIP-630, KIP-853, KIP-996) as Kafka 4.3 runs it.

The contract of a step, which the shell keeps and the simulator checks: the effects of one call are all carried out in
the given order before the next event is entered.
- persist: PersistElection is durable (written, fsynced, renamed) before any later effect of the list. Votes and epochs
  are on disk before any other node learns of them.
- append: AppendEpochStart, AppendVoters, AppendRecords, AppendFetched and Truncate change the log at once, but not
  durably. The core has already applied them to `log`.
- send: Send, Reply and similar effects are carried out only then. Sync starts an fsync of everything appended and
  returns. Synced is entered when it is done. Only then do the records count for this node: for a leader in the high
  watermark, for a follower in its next fetch, for a nominee in its requests for votes.
- apply: with AdvanceHighWatermark, everything below the offset may be applied to the state machine.
- advance: after the list the shell sets its timer to `wake_ms` and may enter the next event. It enters Tick at that
  time.

InstallSnapshot is carried out completely (freeze, truncate), and SnapshotInstalled (or SnapshotBroken) is the very
next event. A crash between any two effects is safe. If `step` raises QuorumViolation or ValueError, halt the node and
keep the files.
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
"""Delay between the candidacies of two followers when the leader's process has ended: long enough for an election."""


class QuorumCore(QuorumState):
    """Call `boot` once, then `step`. `wake_ms` tells when a Tick is due."""

    wake_ms = 0

    def boot(self, stored: ElectionState | None, high_watermark: int, now_ms: int) -> list[effect.Effect]:
        """`stored` is from the quorum-state file. `high_watermark` is the end of the newest snapshot, -1 without one."""
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
            # Never lead this epoch again: unsynced records may be lost, and their offsets must not be reused for other
            # records.
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
        """Handle one event. The time never goes backwards: an earlier `now_ms` is ignored."""
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
        """Do what is due in the present role. A change of role may make more due."""
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
        """Returns False if the peer must be asked again later, also if the answer does not match the request."""
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
            # An older leader, as of Apache Kafka 3.9, takes no report while kraft.version is 0. As in Kafka it is told once.
            is_unsupported = response.error is ErrorCode.UNSUPPORTED_VERSION and response.epoch == self.epoch
            if self.follower is not None and (is_unsupported or outcome is elections.CommonOutcome.PROCEED):
                self.follower.has_updated_leader = True
            return is_unsupported or outcome is not elections.CommonOutcome.FAILED
        # A node with auto join repeats its request in time, whatever the leader answers.
        return asked is AddRaftVoterRequest or asked is RemoveRaftVoterRequest

    def _request_failed(self, event: events.RequestFailed) -> None:
        taken = self.request_manager.on_response(event.correlation_id)
        if taken is None:
            return
        node_id, request = taken
        self.request_manager.back_off(node_id, self.now_ms)
        is_unsupported = event.error is ErrorCode.UNSUPPORTED_VERSION
        if is_unsupported and isinstance(request, VoteRequest):
            elections.handle_vote_unsupported(self, request)
        follower = self.follower
        if follower is not None and isinstance(request, FetchSnapshotRequest):
            follower.download = None
        if follower is not None and is_unsupported and isinstance(request, UpdateRaftVoterRequest):
            # This leader can never be told.
            follower.has_updated_leader = True

    def _peer_refused(self, event: events.PeerRefused) -> None:
        """Treat it like an expired fetch timeout. The pre-vote that follows still asks whether other voters hear the
        leader.

        All followers notice it at the same time. They stand for election one after another, by id. Otherwise their
        votes would split and cost an election timeout. From now on they grant a pre-vote.
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
            # Otherwise the leader's newer snapshot was installed while this one was written, and this one was deleted
            # with the older ones.
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
        """`_poll` does what is due."""

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
