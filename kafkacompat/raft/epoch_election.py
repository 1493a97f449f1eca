"""Counting votes and deciding them. Pure functions of the given values. Follows KIP-595, KIP-853, KIP-996 (pre-vote)."""

from __future__ import annotations

from kafkacompat.ids import NO_LEADER, ZERO_UUID
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet


class EpochElection:
    """The answers of the voters in one election. The node's own vote, if it has one, counts from the start."""

    __slots__ = ("_needed", "_size", "granting_voters", "rejecting_voters", "unrecorded_voters")

    def __init__(self, voters: VoterSet, own_id: int) -> None:
        self._size = len(voters)
        self._needed = voters.majority
        self.granting_voters = [own_id] if own_id in voters.ids else []
        self.rejecting_voters: list[int] = []
        self.unrecorded_voters = [voter for voter in voters.ids if voter != own_id]
        """Voters without an answer yet, ascending."""

    def record_vote(self, voter_id: int, granted: bool) -> None:
        """Only a voter's first answer counts."""
        if voter_id in self.unrecorded_voters:
            self.unrecorded_voters.remove(voter_id)
            (self.granting_voters if granted else self.rejecting_voters).append(voter_id)

    @property
    def is_vote_granted(self) -> bool:
        return len(self.granting_voters) >= self._needed

    @property
    def is_vote_rejected(self) -> bool:
        return len(self.rejecting_voters) > self._size - self._needed


def has_log_at_least(
    candidate_last_epoch: int, candidate_end_offset: int, last_epoch: int, end_offset: int
) -> bool:
    """Whether the candidate's log is not behind ours."""
    return (candidate_last_epoch, candidate_end_offset) >= (last_epoch, end_offset)


def is_voted_for(election: ElectionState, candidate: ReplicaKey) -> bool:
    """Directory ids are compared only if both are known."""
    return election.voted_id == candidate.id and (
        candidate.directory_id == ZERO_UUID
        or election.voted_directory_id in (ZERO_UUID, candidate.directory_id)
    )


def grants_unattached_vote(election: ElectionState, candidate: ReplicaKey, log_is_enough: bool) -> bool:
    """The binding vote of an unattached or prospective voter: one per epoch, and none if the epoch's leader is known."""
    if election.voted_id >= 0:
        return is_voted_for(election, candidate)
    return election.leader_id == NO_LEADER and log_is_enough
