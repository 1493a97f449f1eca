"""The state of one quorum member and its role changes. The handlers decide when a change happens; this module carries
it out.

Pure. Every change goes through `_become` and is checked against the table of roles.py. Durable state is requested
here, before anything that tells other nodes. Follows KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from dataclasses import replace

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_LEADER, NO_OFFSET, OffsetAndEpoch, Uuid
from kafkacompat.meters import RecentTimes
from kafkacompat.ports import Random
from kafkacompat.raft import effects as effect
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.epoch_election import EpochElection
from kafkacompat.raft.leader_state import LeaderState
from kafkacompat.raft.log_shape import LogShape
from kafkacompat.raft.messages import FetchResponse, RaftVoterResponse, Request, Response
from kafkacompat.raft.request_manager import RequestManager
from kafkacompat.raft.roles import (
    NEVER_MS,
    FollowerState,
    NomineeState,
    QuorumViolation,
    ResignedState,
    Role,
    UnattachedState,
    check_move,
)
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSetHistory
from kafkacompat.wire.errors import ErrorCode

CHECK_QUORUM_FACTOR = 1.5


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """controller.quorum.* in ms and bytes, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
    fetch_snapshot_max_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Member:
    """The identity of this node."""

    node_id: int
    directory_id: Uuid
    endpoints: Endpoints
    can_vote: bool
    """It has the controller role: it fsyncs what it has fetched, and may be a voter."""
    cluster_id: str | None = None
    bootstrap: tuple[tuple[int, Endpoints], ...] = ()
    """Pseudo ids (-2, -3, ...) and addresses of controller.quorum.bootstrap.servers."""
    kraft_versions: tuple[int, int] = (0, 1)
    joins: bool = False
    """It asks to become a voter once it follows a quorum that can add it (auto join)."""


class QuorumState:
    """Base of QuorumCore. `effects` collects the effects of one step."""

    def __init__(
        self, member: Member, settings: QuorumSettings, random: Random, log: LogShape, voters: VoterSetHistory
    ) -> None:
        self.member = member
        self.node_id = member.node_id
        self.key = ReplicaKey(member.node_id, member.directory_id)
        self.settings = settings
        self.random = random
        self.log = log
        self.voters = voters
        self.role = Role.UNATTACHED
        self.election = ElectionState()
        self.unattached = UnattachedState(NEVER_MS)
        self.nominee: NomineeState | None = None
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.resigned: ResignedState | None = None
        self.high_watermark = NO_OFFSET
        """This node's high watermark in any role. It never decreases while the node runs."""
        self.first_high_watermark = NO_OFFSET
        """The first one that a leader has told since the boot. A snapshot does not tell what is committed after it."""
        self.request_manager = RequestManager(settings.request_timeout_ms, settings.retry_backoff_ms)
        self.effects: list[effect.Effect] = []
        self.now_ms = 0
        self.leader_endpoints: Endpoints = ()
        self.has_room = True
        """The log has accepted the last records that this node wrote as leader, or there is space again."""
        self.election_times = RecentTimes()
        """From when this node stood for election, the last time, until there was a leader. A sole voter leads at once, and has
        none."""
        self._stands_since_ms: int | None = None
        self.is_syncing = False
        self._syncing_end = NO_OFFSET
        self.check_quorum_ms = int(settings.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    @property
    def is_voter(self) -> bool:
        return self.voters.latest.contains(self.key)

    @property
    def stands(self) -> bool:
        """Whether the node may be elected: a voter, or one whose removal may not be committed yet. Never one whose log
        accepts no records.

        A node being removed may have the only log that the others cannot outvote, so the quorum would be stuck without
        it (Ongaro's dissertation, 4.2.2). It does not count itself, and steps down once the removal is committed.
        """
        voters = self.voters
        if not self.has_room:
            return False
        return voters.latest.contains(self.key) or (
            self.member.can_vote
            and voters.latest_offset >= self.high_watermark
            and voters.latest_offset >= 0
            and voters.previous.contains(self.key)
        )

    # Effects.

    def send(self, node_id: int, endpoints: Endpoints, request: Request) -> None:
        correlation_id = self.request_manager.on_request_sent(node_id, request, self.now_ms)
        self.effects.append(effect.Send(node_id, endpoints, correlation_id, request))

    def reply(self, request_id: int, response: Response) -> None:
        self.effects.append(effect.Reply(request_id, response))

    def persist(self, election: ElectionState) -> None:
        """Ask for the state to become durable, unless it already is."""
        if election != self.election:
            self.election = election
            self.effects.append(effect.PersistElection(election))

    def ask_sync(self) -> None:
        if not self.is_syncing and self.log.durable_end < self.log.end:
            self.is_syncing = True
            self._syncing_end = self.log.end
            self.effects.append(effect.Sync())

    def sync_done(self) -> None:
        self.is_syncing = False
        if self._syncing_end > self.log.durable_end:
            self.log.durable_end = min(self._syncing_end, self.log.end)

    def truncate(self, offset: int) -> None:
        """Raises QuorumViolation below the high watermark, because a committed record would disappear."""
        if offset < self.high_watermark:
            raise QuorumViolation(
                f"the leader's log ends at {offset}, but below {self.high_watermark} is committed here"
            )
        self.log.truncate(offset)
        # A running sync of the truncated part says nothing about the records written there later.
        self._syncing_end = min(self._syncing_end, offset)
        self.voters.truncate_new_entries(offset)
        self.effects.append(effect.Truncate(offset))

    def restarted_at(self, snapshot_id: OffsetAndEpoch, size_bytes: int) -> None:
        self.log.restart_at(snapshot_id, size_bytes)
        self._syncing_end = min(self._syncing_end, snapshot_id.offset)

    def hear(self, high_watermark: int) -> None:
        """The leader, this node or another one, has told its high watermark. This node's is at most its log's end."""
        offset = min(self.log.end, high_watermark)
        if self.first_high_watermark > NO_OFFSET or high_watermark <= NO_OFFSET:
            self.advance(offset)
            return
        self.first_high_watermark = high_watermark
        self.high_watermark = max(self.high_watermark, offset)
        self.effects.append(effect.AdvanceHighWatermark(self.high_watermark, is_first=True))

    def advance(self, offset: int) -> None:
        """Everything below this offset is committed. There may be more."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.append(effect.AdvanceHighWatermark(offset))

    # Moves.

    def election_deadline_ms(self) -> int:
        """A random time in [t, 2t) from now. Never for a node without a vote."""
        if not self.stands:
            return NEVER_MS
        timeout_ms = self.settings.election_timeout_ms
        return self.now_ms + timeout_ms + self.random.randrange(timeout_ms)

    def _become(self, role: Role, election: ElectionState, leader_endpoints: Endpoints) -> None:
        before = self.election
        check_move(self.role, before.leader_epoch, role, election.leader_epoch)
        led = self.leader
        self.persist(election)
        self.role = role
        self.leader_endpoints = leader_endpoints
        self.nominee = None
        self.follower = None
        self.resigned = None
        self.leader = None
        self.request_manager.reset_all()
        if (election.leader_epoch, election.leader_id) != (before.leader_epoch, before.leader_id):
            self.effects.append(effect.LeaderChanged(election.leader_epoch, election.leader_id))
        if led is not None:
            self._release_waiters(led)

    def _release_waiters(self, led: LeaderState) -> None:
        """Answer at once the requests that wait at a leader that steps down."""
        for parked in led.parked.values():
            refusal = FetchResponse(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, self.election.leader_id, self.leader_endpoints
            )
            self.reply(parked.request_id, refusal)
        if led.change is not None and led.change.request_id is not None:
            self.reply(
                led.change.request_id,
                RaftVoterResponse(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is not the leader any more", self.epoch
                ),
            )

    def become_unattached(self, epoch: int, leader_id: int = NO_LEADER) -> None:
        """For a higher epoch, or for the same one if a prospective has lost. The rest of an election timeout is kept."""
        deadline_ms = 0
        if self.role is Role.UNATTACHED:
            deadline_ms = self.unattached.deadline_ms
        elif self.nominee is not None and not self.nominee.epoch_election.is_vote_rejected:
            deadline_ms = self.nominee.deadline_ms
        election = (
            self.election
            if epoch == self.epoch
            else ElectionState(epoch, leader_id, voters=self.voters.latest.ids)
        )
        self._become(Role.UNATTACHED, election, ())
        if deadline_ms <= self.now_ms or not self.stands:
            deadline_ms = self.election_deadline_ms()
        self.unattached = UnattachedState(deadline_ms)

    def become_prospective(self) -> None:
        self._become(Role.PROSPECTIVE, self.election, self.leader_endpoints)
        self._stand(EpochElection(self.voters.latest, self.node_id))

    def become_candidate(self) -> None:
        voters = self.voters.latest
        vote = ElectionState(self.epoch + 1, NO_LEADER, self.node_id, self.member.directory_id, voters.ids)
        self._become(Role.CANDIDATE, vote, ())
        self._stand(EpochElection(voters, self.node_id))

    def _stand(self, election: EpochElection) -> None:
        self.nominee = NomineeState(self.election_deadline_ms(), election)
        if not election.is_vote_granted:
            self._stands_since_ms = self.now_ms

    def _end_election(self) -> None:
        """There is a leader. A node that did not stand has no time to tell."""
        if self._stands_since_ms is not None:
            self.election_times.note(self.now_ms - self._stands_since_ms, self.now_ms)
            self._stands_since_ms = None

    def become_leader(self) -> LeaderState:
        assert self.nominee is not None
        granting = tuple(sorted(self.nominee.epoch_election.granting_voters))
        # The vote was for itself. As in Kafka, quorum-state then names the leader only.
        election = ElectionState(self.epoch, self.node_id, voters=self.election.voters)
        self._become(Role.LEADER, election, self.member.endpoints)
        state = LeaderState(self.node_id, self.log.end, self.voters.latest, granting)
        state.check_quorum_at_ms = self.now_ms + self.check_quorum_ms
        state.begin_at_ms = self.now_ms
        self.leader = state
        self._end_election()
        self.effects.append(effect.BecameLeader(self.epoch))
        return state

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """A vote cast in the same epoch is kept, because it cannot be cast again."""
        if epoch == self.epoch:
            election = replace(self.election, leader_id=leader_id)
        else:
            election = ElectionState(epoch, leader_id, voters=self.voters.latest.ids)
        self._become(Role.FOLLOWER, election, endpoints)
        self._end_election()
        self.follow(leader_id, endpoints)

    def follow(self, leader_id: int, endpoints: Endpoints) -> None:
        deadline_ms = self.now_ms + self.settings.fetch_timeout_ms
        self.follower = FollowerState(leader_id, endpoints, deadline_ms)
        if self.member.can_vote:
            self.follower.update_voter_at_ms = deadline_ms

    def become_resigned(self) -> None:
        assert self.leader is not None
        preferred = self.leader.non_leader_voters_by_descending_fetch_offset(self.voters.latest)
        self._become(Role.RESIGNED, self.election, self.member.endpoints)
        self.resign(preferred)

    def resign(self, preferred: tuple[ReplicaKey, ...]) -> None:
        unacknowledged = [voter for voter in self.voters.latest.ids if voter != self.node_id]
        timeout_ms = self.settings.election_timeout_ms
        deadline_ms = self.now_ms + timeout_ms + self.random.randrange(timeout_ms)
        self.resigned = ResignedState(deadline_ms, preferred, unacknowledged)
