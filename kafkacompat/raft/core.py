"""A voter's role in the metadata quorum, as Kafka's raft moves it: here the quorum of one.

Pure: events in, effects out. The shell carries out the effects of one call in their order (persist, then append, then apply)
before the next event. Transitions are those of KIP-595 and KIP-853; a sole voter goes from its stored state straight through
prospective and candidate to leader of a new epoch. Votes, fetches and more voters arrive with the quorum; the state and the
high-watermark rule already stand for any number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafkacompat.ids import NO_LEADER, NO_OFFSET, Uuid
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.voters import Voter


class Role(Enum):
    UNATTACHED = "unattached"
    RESIGNED = "resigned"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"


LEGAL: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.PROSPECTIVE}),
    Role.RESIGNED: frozenset({Role.UNATTACHED}),
    Role.PROSPECTIVE: frozenset({Role.CANDIDATE, Role.UNATTACHED}),
    Role.CANDIDATE: frozenset({Role.LEADER, Role.PROSPECTIVE}),
    Role.LEADER: frozenset({Role.RESIGNED}),
}
"""Every change of role that may happen; anything else is a bug."""


class IllegalTransition(Exception):
    """A change of role that KRaft does not have: halt, keep the files."""


class NotAVoter(Exception):
    """This node is not the quorum's sole voter; the message names who is."""


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Make the election state durable before anything that follows."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendEpochStart:
    """Append the epoch's first control batch."""

    epoch: int
    leader_id: int
    voters: tuple[Voter, ...]
    with_voters: bool
    """Also KRaftVersion and Voters: kraft.version 1 and the set is only in the 0-0 snapshot, or our entry changed."""


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below `offset` is committed."""

    offset: int


Effect = PersistElection | AppendEpochStart | AdvanceHighWatermark


@dataclass(slots=True)
class QuorumView:
    """What boot knows from disk and settings."""

    node_id: int
    directory_id: Uuid
    voters: tuple[Voter, ...]
    """The newest set: from log or snapshot, else the static one. A ZERO directory id matches any."""
    kraft_version: int
    voters_in_log: bool
    """False while the set is known only from the 0-0 snapshot."""
    own_listeners: tuple[tuple[str, str, int], ...]
    stored: ElectionState
    last_epoch: int
    log_end_offset: int


class RaftCore:
    """`boot`, then `appended` and `synced` as they happen."""

    __slots__ = (
        "_durable_offset",
        "_voters",
        "election",
        "epoch_start_offset",
        "high_watermark",
        "node_id",
        "role",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.role = Role.UNATTACHED
        self.election = ElectionState()
        self.epoch_start_offset = NO_OFFSET
        self.high_watermark = NO_OFFSET
        self._durable_offset = NO_OFFSET
        self._voters: tuple[Voter, ...] = ()

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    def boot(self, view: QuorumView) -> list[Effect]:
        """NotAVoter unless this node with this directory is the one voter."""
        me = self._find_self(view)
        stored = view.stored
        if stored.leader_epoch < view.last_epoch:
            self.election = ElectionState(leader_epoch=view.last_epoch)
        else:
            self.election = stored
        if self.election.leader_id == self.node_id:
            self.role = Role.RESIGNED
            self._become(Role.UNATTACHED)
        self._become(Role.PROSPECTIVE)
        self._become(Role.CANDIDATE)
        epoch = self.election.leader_epoch + 1
        ids = tuple(voter.id for voter in view.voters)
        candidate = ElectionState(epoch, NO_LEADER, self.node_id, view.directory_id, ids)
        self._become(Role.LEADER)
        self.election = replace(ElectionState(leader_epoch=epoch, leader_id=self.node_id), voters=ids)
        self.epoch_start_offset = view.log_end_offset
        changed = view.kraft_version >= 1 and me.listeners != view.own_listeners
        mine = Voter(self.node_id, view.directory_id, view.own_listeners)
        self._voters = (mine,) if view.kraft_version >= 1 else view.voters
        with_voters = view.kraft_version >= 1 and (changed or not view.voters_in_log)
        return [
            PersistElection(candidate),
            PersistElection(self.election),
            AppendEpochStart(epoch, self.node_id, self._voters, with_voters),
        ]

    def synced(self, end_offset: int) -> list[Effect]:
        """The leader's own log is durable below end_offset."""
        self._durable_offset = max(self._durable_offset, end_offset)
        return self._maybe_advance()

    def resign(self) -> None:
        """At shutdown; leadership is never taken up again in this epoch."""
        self._become(Role.RESIGNED)

    def _maybe_advance(self) -> list[Effect]:
        ends = sorted(
            (self._durable_offset if voter.id == self.node_id else NO_OFFSET for voter in self._voters),
            reverse=True,
        )
        majority_end = ends[len(ends) // 2]
        if majority_end > self.epoch_start_offset and majority_end > self.high_watermark:
            self.high_watermark = majority_end
            return [AdvanceHighWatermark(majority_end)]
        return []

    def _find_self(self, view: QuorumView) -> Voter:
        if len(view.voters) != 1 or view.voters[0].id != view.node_id:
            names = ", ".join(str(voter.id) for voter in view.voters) or "nobody"
            raise NotAVoter(
                f"the metadata quorum's voters are {names}, but node.id is {view.node_id} (one voter is served)"
            )
        voter = view.voters[0]
        if voter.directory_id not in (bytes(16), view.directory_id):
            raise NotAVoter(
                f"voter {voter.id} of the metadata quorum lives in another directory than metadata.log.dir"
            )
        return voter

    def _become(self, role: Role) -> None:
        if role not in LEGAL[self.role]:
            raise IllegalTransition(f"{self.role.value} -> {role.value}")
        self.role = role
