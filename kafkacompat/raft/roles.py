"""The roles of a quorum member, their state, and the table of legal changes between them.

Pure data. Follows KIP-595, KIP-853 and KIP-996. An observer uses only UNATTACHED and FOLLOWER.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.epoch_election import EpochElection
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey

NEVER_MS = 1 << 62
"""A deadline that is never reached."""


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"

    __hash__ = object.__hash__


class EpochMove(Enum):
    """How the epoch changes with a change of role."""

    SAME = "same"
    NEXT = "next"
    HIGHER = "higher"
    NOT_LOWER = "not lower"


_U, _P, _C = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
_L, _F, _R = Role.LEADER, Role.FOLLOWER, Role.RESIGNED

LEGAL_MOVES: dict[tuple[Role, Role], EpochMove] = {
    (_U, _U): EpochMove.HIGHER,
    (_U, _P): EpochMove.SAME,
    (_U, _F): EpochMove.NOT_LOWER,
    (_P, _U): EpochMove.NOT_LOWER,
    (_P, _C): EpochMove.NEXT,
    (_P, _F): EpochMove.NOT_LOWER,
    (_C, _U): EpochMove.HIGHER,
    (_C, _P): EpochMove.SAME,
    (_C, _L): EpochMove.SAME,
    (_C, _F): EpochMove.NOT_LOWER,
    (_F, _U): EpochMove.HIGHER,
    (_F, _P): EpochMove.SAME,
    (_F, _F): EpochMove.HIGHER,
    (_L, _U): EpochMove.HIGHER,
    (_L, _F): EpochMove.HIGHER,
    (_L, _R): EpochMove.SAME,
    (_R, _U): EpochMove.HIGHER,
    (_R, _P): EpochMove.SAME,
    (_R, _F): EpochMove.HIGHER,
}
"""(from, to) -> how the epoch changes. A missing pair is a bug: two leaders in one epoch, or a leader that starts
again.

RESIGNED to PROSPECTIVE is for a sole voter at its start, which need not wait for others.
"""

BOOT_ROLES = frozenset({_U, _C, _F, _R})
"""The roles that a stored election state may start with."""


class QuorumViolation(Exception):
    """An invariant of the quorum is broken, here or by a peer: halt the node and keep the files."""


def check_move(before: Role, epoch_before: int, after: Role, epoch_after: int) -> None:
    """Raise QuorumViolation unless the table allows the change."""
    rule = LEGAL_MOVES.get((before, after))
    ok = (
        (rule is EpochMove.SAME and epoch_after == epoch_before)
        or (rule is EpochMove.NEXT and epoch_after == epoch_before + 1)
        or (rule is EpochMove.HIGHER and epoch_after > epoch_before)
        or (rule is EpochMove.NOT_LOWER and epoch_after >= epoch_before)
    )
    if not ok:
        raise QuorumViolation(
            f"{before.value} in epoch {epoch_before} may not become {after.value} in epoch {epoch_after}"
        )


@dataclass(slots=True)
class UnattachedState:
    deadline_ms: int
    """Election timeout; NEVER_MS for an observer."""


@dataclass(slots=True)
class NomineeState:
    """The state of a prospective or a candidate."""

    deadline_ms: int
    epoch_election: EpochElection


@dataclass(slots=True)
class SnapshotDownload:
    snapshot_id: OffsetAndEpoch
    position: int = 0
    is_installing: bool = False
    """All bytes have arrived. SnapshotInstalled is the very next event."""


@dataclass(slots=True)
class FollowerState:
    leader_id: int
    endpoints: Endpoints
    deadline_ms: int
    """Fetch timeout."""
    has_fetched: bool = False
    """A fetch from the leader succeeded in this epoch. The leader is alive, so no pre-vote is granted."""
    download: SnapshotDownload | None = None
    update_voter_at_ms: int = NEVER_MS
    has_updated_leader: bool = False
    """The leader has taken this node's UpdateRaftVoter, or takes none. With kraft.version 0 it need not be sent again in this
    epoch."""


@dataclass(slots=True)
class ResignedState:
    deadline_ms: int
    preferred: tuple[ReplicaKey, ...]
    unacknowledged: list[int] = field(default_factory=list)
