"""Planted bugs. Each disables one rule of the core. The simulation must find every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.ids import NO_LEADER
from kafkacompat.raft import effects as effect
from kafkacompat.raft import elections, following, leading, membership
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.leader_state import LeaderState
from kafkacompat.raft.log_shape import LogShape, Validity
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import NEVER_MS, Role
from kafkacompat.raft.voter_set import VoterSetHistory
from kafkacompat.wire.errors import ErrorCode

Plant = Callable[[pytest.MonkeyPatch], None]


def vote_not_persisted(patch: pytest.MonkeyPatch) -> None:
    original = QuorumState.persist

    def persist(self: QuorumState, election: ElectionState) -> None:
        if election.voted_id >= 0 and election.leader_id == NO_LEADER:
            self.election = election
        else:
            original(self, election)

    patch.setattr(QuorumState, "persist", persist)


def vote_persisted_after_the_reply(patch: pytest.MonkeyPatch) -> None:
    original = QuorumCore.step

    def step(self: QuorumCore, event: Any, now_ms: int) -> list[effect.Effect]:
        return sorted(original(self, event, now_ms), key=lambda each: type(each) is effect.PersistElection)

    patch.setattr(QuorumCore, "step", step)


def watermark_of_a_minority(patch: pytest.MonkeyPatch) -> None:
    def majority_end(self: LeaderState, voters: Any, own_durable_end: int) -> int:
        ends = [own_durable_end, *(progress.end_offset for progress in self.voters.values())]
        return sorted(ends)[-1]

    patch.setattr(LeaderState, "majority_end", majority_end)


def leader_counts_its_unsynced_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading, "own_durable_end", lambda state: state.log.end)


def acknowledged_before_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "may_acknowledge", lambda state: True)


def sync_under_way_counts_after_truncation(patch: pytest.MonkeyPatch) -> None:
    def sync_done(self: QuorumState) -> None:
        self.is_syncing = False
        self.log.durable_end = self.log.end

    patch.setattr(QuorumState, "sync_done", sync_done)


def no_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumState, "truncate", lambda self, offset: None)


def divergence_overlooked(patch: pytest.MonkeyPatch) -> None:
    original = LogShape.validate

    def validate(self: LogShape, offset: int, epoch: int) -> Any:
        validity, place = original(self, offset, epoch)
        if validity is Validity.DIVERGING and offset in (self.end, *self._starts):
            return Validity.VALID, None
        return validity, place

    patch.setattr(LogShape, "validate", validate)


def watermark_taken_with_a_divergence(patch: pytest.MonkeyPatch) -> None:
    original = following.handle_fetch_response

    def handle(state: Any, node_id: int, request: Any, response: Any) -> bool:
        done = original(state, node_id, request, response)
        if response.diverging is not None and state.follower is not None:
            state.advance(min(state.log.end, response.high_watermark))
        return done

    patch.setattr(following, "handle_fetch_response", handle)


def vote_for_a_shorter_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "has_log_at_least", lambda *_: True)


def votes_compared_by_offset_alone(patch: pytest.MonkeyPatch) -> None:
    def compare(candidate_epoch: int, candidate_end: int, last_epoch: int, end: int) -> bool:
        return candidate_end >= end

    patch.setattr(elections, "has_log_at_least", compare)


def two_votes_in_one_epoch(patch: pytest.MonkeyPatch) -> None:
    def grants(election: ElectionState, candidate: Any, log_is_enough: bool) -> bool:
        return election.leader_id == NO_LEADER and log_is_enough

    def record(state: QuorumState, candidate: Any) -> None:
        state.persist(
            replace(state.election, voted_id=candidate.id, voted_directory_id=candidate.directory_id)
        )

    patch.setattr(elections, "grants_unattached_vote", grants)
    patch.setattr(elections, "record_vote", record)


def vote_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    original = QuorumCore.boot

    def boot(self: QuorumCore, stored: ElectionState | None, high_watermark: int, now_ms: int) -> Any:
        if stored is not None and stored.leader_id == NO_LEADER:
            stored = ElectionState(stored.leader_epoch)
            self.effects.append(effect.PersistElection(stored))
        return original(self, stored, high_watermark, now_ms)

    patch.setattr(QuorumCore, "boot", boot)


def leadership_taken_up_again_after_restart(patch: pytest.MonkeyPatch) -> None:
    original = QuorumCore.boot

    def boot(self: QuorumCore, stored: ElectionState | None, high_watermark: int, now_ms: int) -> Any:
        if stored is not None and stored.leader_id == self.node_id:
            own, directory_id = self.key
            stored = replace(stored, leader_id=NO_LEADER, voted_id=own, voted_directory_id=directory_id)
            self.effects.append(effect.PersistElection(stored))
        return original(self, stored, high_watermark, now_ms)

    patch.setattr(QuorumCore, "boot", boot)


def stale_leader_keeps_answering(patch: pytest.MonkeyPatch) -> None:
    def refusal(state: QuorumState, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if state.leader is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    patch.setattr(leading, "validate_leader_only_request", refusal)


def watermark_retreats(patch: pytest.MonkeyPatch) -> None:
    """A newly added voter has less than the majority before it."""

    def maybe_update_high_watermark(self: LeaderState, voters: Any, own_durable_end: int) -> bool:
        end = self.majority_end(voters, own_durable_end)
        if end > self.epoch_start and end != self.high_watermark:
            self.high_watermark = end
            return True
        return False

    def advance(self: QuorumState, offset: int) -> None:
        if offset > self.high_watermark:
            self.effects.append(effect.AdvanceHighWatermark(offset))
        if offset > 0:
            self.high_watermark = offset

    patch.setattr(LeaderState, "maybe_update_high_watermark", maybe_update_high_watermark)
    patch.setattr(QuorumState, "advance", advance)


def watermark_before_the_epoch_began(patch: pytest.MonkeyPatch) -> None:
    def maybe_update_high_watermark(self: LeaderState, voters: Any, own_durable_end: int) -> bool:
        end = self.majority_end(voters, own_durable_end)
        if end > self.high_watermark:
            self.high_watermark = end
            return True
        return False

    patch.setattr(LeaderState, "maybe_update_high_watermark", maybe_update_high_watermark)


def pre_vote_bumps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    original = QuorumState.become_prospective

    def become_prospective(self: QuorumState) -> None:
        self.persist(ElectionState(self.epoch + 1))
        original(self)

    patch.setattr(QuorumState, "become_prospective", become_prospective)


def pre_votes_count_as_votes(patch: pytest.MonkeyPatch) -> None:
    original = QuorumState.become_candidate

    def become_candidate(self: QuorumState) -> None:
        assert self.nominee is not None
        epoch_election = self.nominee.epoch_election
        original(self)
        self.nominee.epoch_election = epoch_election

    patch.setattr(QuorumState, "become_candidate", become_candidate)


def voters_not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSetHistory, "truncate_new_entries", lambda self, end_offset: False)


def voter_changes_overlap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "_precheck", lambda state, leader: None)


def candidate_never_gives_up(patch: pytest.MonkeyPatch) -> None:
    """After a split vote no candidate starts a new election."""
    original = elections.poll_nominee

    def poll(state: QuorumState) -> int:
        if state.role is Role.CANDIDATE and state.nominee is not None:
            state.nominee.deadline_ms = NEVER_MS
        return original(state)

    patch.setattr(elections, "poll_nominee", poll)


def own_removal_stops_the_quorum(patch: pytest.MonkeyPatch) -> None:
    """A node that is not in the newest voter set never becomes a candidate, although its removal may not be committed."""
    patch.setattr(QuorumState, "stands", property(lambda self: self.is_voter))


SEEN_AT = {
    "candidate_never_gives_up": 53,
    "own_removal_stops_the_quorum": 214,
    "watermark_taken_with_a_divergence": 119,
}
"""The seeds that found the rarer ones. After a change of the core it may be another seed."""

MUTANTS: tuple[Plant, ...] = (
    vote_not_persisted,
    vote_persisted_after_the_reply,
    watermark_of_a_minority,
    leader_counts_its_unsynced_log,
    acknowledged_before_fsync,
    sync_under_way_counts_after_truncation,
    no_truncation,
    divergence_overlooked,
    watermark_taken_with_a_divergence,
    vote_for_a_shorter_log,
    votes_compared_by_offset_alone,
    two_votes_in_one_epoch,
    vote_forgotten_on_restart,
    leadership_taken_up_again_after_restart,
    stale_leader_keeps_answering,
    watermark_retreats,
    watermark_before_the_epoch_began,
    pre_vote_bumps_the_epoch,
    pre_votes_count_as_votes,
    voters_not_rolled_back,
    voter_changes_overlap,
    candidate_never_gives_up,
    own_removal_stops_the_quorum,
)
