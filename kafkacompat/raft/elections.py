"""Elections: Vote with pre-vote, BeginQuorumEpoch, EndQuorumEpoch, and the leader and epoch in any response.

Pure functions over a QuorumState. Follows KIP-595, KIP-853 (voter keys) and KIP-996 (pre-vote). The order of checks is
Kafka's.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from kafkacompat.ids import NO_LEADER, ZERO_UUID
from kafkacompat.raft.epoch_election import grants_unattached_vote, has_log_at_least
from kafkacompat.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import QuorumViolation, Role
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey
from kafkacompat.wire.errors import ErrorCode

EPOCHS_MISSED_MAX = 1_000_000
"""The most elections that others may have held without this node. A peer with a higher epoch could exhaust the 32-bit
epochs."""


class CommonOutcome(Enum):
    """The handling that a response needs after its leader and epoch were checked."""

    PROCEED = "proceed"
    HANDLED = "handled"
    FAILED = "failed"
    """Back off and retry."""


def has_valid_cluster_id(state: QuorumState, cluster_id: str | None) -> bool:
    """Check the cluster id. A request without one is accepted."""
    mine = state.member.cluster_id
    return cluster_id is None or mine is None or cluster_id == mine


def is_valid_voter_key(state: QuorumState, voter: ReplicaKey | None) -> bool:
    if voter is None:
        return True
    return voter.id == state.node_id and voter.directory_id in (ZERO_UUID, state.member.directory_id)


def maybe_transition(state: QuorumState, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
    """Take over the leader and epoch of a peer, for an epoch not below ours. Raises QuorumViolation for another leader
    of our epoch."""
    known = state.election.leader_id
    if leader_id == state.node_id:
        # The leader is this node, or a node with our id that has lost its disk. There is no leader to follow, and
        # nothing to vote on in that epoch.
        return
    if leader_id >= 0 and not endpoints:
        endpoints = state.voters.latest.endpoints(leader_id)
    if epoch > state.epoch:
        if leader_id >= 0 and endpoints:
            state.become_follower(epoch, leader_id, endpoints)
        else:
            state.become_unattached(epoch, leader_id)
    elif leader_id >= 0:
        if known not in (NO_LEADER, leader_id):
            raise QuorumViolation(f"epoch {epoch} has two leaders: {known} and {leader_id}")
        if endpoints and (known == NO_LEADER or not state.leader_endpoints):
            state.become_follower(epoch, leader_id, endpoints)


def maybe_handle_common_response(
    state: QuorumState, error: ErrorCode, epoch: int, leader_id: int, endpoints: Endpoints
) -> CommonOutcome:
    """Handle the parts that all responses have in common."""
    if epoch < state.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return CommonOutcome.HANDLED
    if epoch > state.epoch and leader_id == state.node_id:
        return CommonOutcome.FAILED
    if epoch > state.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        maybe_transition(state, epoch, leader_id, endpoints)
        return CommonOutcome.HANDLED
    if leader_id >= 0:
        maybe_transition(state, epoch, leader_id, endpoints)
    if error is ErrorCode.NONE:
        return CommonOutcome.PROCEED
    if error is ErrorCode.INVALID_VOTER_KEY:
        return CommonOutcome.HANDLED
    return CommonOutcome.FAILED


# Vote.


def handle_vote_request(state: QuorumState, request_id: int, request: VoteRequest) -> None:
    if not has_valid_cluster_id(state, request.cluster_id):
        _answer_vote(state, request_id, ErrorCode.NONE, False, ErrorCode.INCONSISTENT_CLUSTER_ID)
        return
    highest_last_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if request.last_offset < 0 or request.last_epoch < 0 or request.last_epoch > highest_last_epoch:
        _answer_vote(state, request_id, ErrorCode.INVALID_REQUEST, False)
        return
    if request.epoch < state.epoch:
        _answer_vote(state, request_id, ErrorCode.FENCED_LEADER_EPOCH, False)
        return
    if request.candidate.id < 0 or request.epoch > state.epoch + EPOCHS_MISSED_MAX:
        _answer_vote(state, request_id, ErrorCode.INVALID_REQUEST, False)
        return
    if request.epoch > state.epoch:
        state.become_unattached(request.epoch)
    if not is_valid_voter_key(state, request.voter):
        _answer_vote(state, request_id, ErrorCode.INVALID_VOTER_KEY, False)
        return
    granted = can_grant_vote(state, request)
    if granted and not request.pre_vote:
        record_vote(state, request.candidate)
    _answer_vote(state, request_id, ErrorCode.NONE, granted)


def can_grant_vote(state: QuorumState, request: VoteRequest) -> bool:
    log_is_enough = has_log_at_least(
        request.last_epoch, request.last_offset, state.log.last_epoch, state.log.end
    )
    role = state.role
    if role is Role.LEADER:
        return False
    if request.pre_vote:
        if role is Role.FOLLOWER:
            assert state.follower is not None
            return log_is_enough and not state.follower.has_fetched
        return log_is_enough
    if role is Role.UNATTACHED or role is Role.PROSPECTIVE:
        return grants_unattached_vote(state.election, request.candidate, log_is_enough)
    return False


def record_vote(state: QuorumState, candidate: ReplicaKey) -> None:
    """The vote becomes durable before the answer that follows it."""
    if state.election.voted_id < 0:
        state.persist(
            replace(state.election, voted_id=candidate.id, voted_directory_id=candidate.directory_id)
        )


def _answer_vote(
    state: QuorumState,
    request_id: int,
    error: ErrorCode,
    granted: bool,
    top_level_error: ErrorCode = ErrorCode.NONE,
) -> None:
    state.reply(
        request_id,
        VoteResponse(
            error,
            state.epoch,
            state.election.leader_id,
            granted,
            state.leader_endpoints,
            top_level_error,
        ),
    )


def handle_vote_response(
    state: QuorumState, node_id: int, request: VoteRequest, response: VoteResponse
) -> bool:
    """Returns False if the peer must be asked again later."""
    if response.top_level_error is not ErrorCode.NONE:
        return False
    outcome = maybe_handle_common_response(
        state, response.error, response.epoch, response.leader_id, response.leader_endpoints
    )
    if outcome is not CommonOutcome.PROCEED:
        return outcome is CommonOutcome.HANDLED
    nominee = state.nominee
    asked_as = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
    if nominee is None or state.role is not asked_as or request.epoch != state.epoch:
        return True
    nominee.epoch_election.record_vote(node_id, response.granted)
    return True


def handle_vote_unsupported(state: QuorumState, request: VoteRequest) -> None:
    """The peer does not support pre-vote: elect in the older way."""
    if state.role is Role.PROSPECTIVE and request.pre_vote:
        state.become_candidate()


def poll_nominee(state: QuorumState) -> int:
    """Continue if won, lost or timed out; otherwise ask the voters that have not answered, once the log is durable.
    Returns the time of the next check; -1: at once."""
    nominee = state.nominee
    assert nominee is not None
    now_ms = state.now_ms
    if state.role is Role.PROSPECTIVE:
        if nominee.epoch_election.is_vote_granted:
            state.become_candidate()
            return -1
        if nominee.epoch_election.is_vote_rejected or now_ms >= nominee.deadline_ms:
            _transition_after_election_loss(state)
            return -1
    elif now_ms >= nominee.deadline_ms:
        state.become_prospective()
        return -1
    if state.log.durable_end < state.log.end:
        # A voter grants a repeated request of one epoch without a look at the log. So a crash between the two may not leave
        # less of the log than the first one has told of.
        state.ask_sync()
        return nominee.deadline_ms
    pre_vote = state.role is Role.PROSPECTIVE
    wake_ms = nominee.deadline_ms
    voters = state.voters.latest
    for voter_id in nominee.epoch_election.unrecorded_voters:
        if state.request_manager.is_ready(voter_id, now_ms):
            request = VoteRequest(
                state.key,
                voters.key(voter_id),
                state.epoch,
                state.log.last_epoch,
                state.log.end,
                pre_vote,
                state.member.cluster_id,
            )
            state.send(voter_id, voters.endpoints(voter_id), request)
        wake_ms = min(wake_ms, state.request_manager.get(voter_id).wake_ms())
    return wake_ms


def _transition_after_election_loss(state: QuorumState) -> None:
    leader_id = state.election.leader_id
    if leader_id >= 0 and leader_id != state.node_id and state.leader_endpoints:
        state.become_follower(state.epoch, leader_id, state.leader_endpoints)
    else:
        state.become_unattached(state.epoch)


# BeginQuorumEpoch and EndQuorumEpoch.


def _answer_epoch(
    state: QuorumState, request_id: int, error: ErrorCode, top_level_error: ErrorCode = ErrorCode.NONE
) -> None:
    state.reply(
        request_id,
        QuorumEpochResponse(
            error, state.epoch, state.election.leader_id, state.leader_endpoints, top_level_error
        ),
    )


def handle_begin_quorum_epoch_request(
    state: QuorumState, request_id: int, request: BeginQuorumEpochRequest
) -> None:
    if not _take_epoch(state, request_id, request):
        return
    ok = is_valid_voter_key(state, request.voter)
    _answer_epoch(state, request_id, ErrorCode.NONE if ok else ErrorCode.INVALID_VOTER_KEY)


def handle_end_quorum_epoch_request(
    state: QuorumState, request_id: int, request: EndQuorumEpochRequest
) -> None:
    """The follower stands for election after a backoff that depends on its place among the preferred candidates."""
    if not _take_epoch(state, request_id, request):
        return
    follower = state.follower
    if follower is not None and follower.leader_id == request.leader_id:
        backoff_ms = end_epoch_election_backoff_ms(
            state.key, request.preferred_candidates, state.settings.election_backoff_max_ms
        )
        follower.deadline_ms = state.now_ms + backoff_ms
    _answer_epoch(state, request_id, ErrorCode.NONE)


def _take_epoch(
    state: QuorumState, request_id: int, request: BeginQuorumEpochRequest | EndQuorumEpochRequest
) -> bool:
    """Returns False if the request was refused."""
    if not has_valid_cluster_id(state, request.cluster_id):
        _answer_epoch(state, request_id, ErrorCode.NONE, ErrorCode.INCONSISTENT_CLUSTER_ID)
        return False
    if request.epoch < state.epoch:
        _answer_epoch(state, request_id, ErrorCode.FENCED_LEADER_EPOCH)
        return False
    is_leap = request.epoch > state.epoch + EPOCHS_MISSED_MAX
    if is_leap or request.leader_id < 0 or request.leader_id == state.node_id:
        _answer_epoch(state, request_id, ErrorCode.INVALID_REQUEST)
        return False
    maybe_transition(state, request.epoch, request.leader_id, request.leader_endpoints)
    return True


def end_epoch_election_backoff_ms(me: ReplicaKey, preferred: tuple[ReplicaKey, ...], max_ms: int) -> int:
    """0 for the first candidate, doubling with each place up to max_ms. max_ms if this node is not listed."""
    for place, key in enumerate(preferred):
        if key.id == me.id and key.directory_id in (ZERO_UUID, me.directory_id):
            if place == 0:
                return 0
            return min(max_ms, (max_ms >> (len(preferred) - 1)) << (place - 1))
    return max_ms


def handle_epoch_response(state: QuorumState, node_id: int, response: QuorumEpochResponse) -> bool:
    if response.top_level_error is not ErrorCode.NONE:
        return False
    outcome = maybe_handle_common_response(
        state, response.error, response.epoch, response.leader_id, response.leader_endpoints
    )
    if (
        outcome is CommonOutcome.PROCEED
        and state.resigned is not None
        and node_id in state.resigned.unacknowledged
    ):
        state.resigned.unacknowledged.remove(node_id)
    return outcome is not CommonOutcome.FAILED


def poll_resigned(state: QuorumState) -> int:
    """Tell every voter until it answers. After the election timeout the next epoch begins without a leader."""
    resigned = state.resigned
    assert resigned is not None
    now_ms = state.now_ms
    if now_ms >= resigned.deadline_ms:
        state.become_unattached(state.epoch + 1)
        return -1
    wake_ms = resigned.deadline_ms
    voters = state.voters.latest
    for voter_id in resigned.unacknowledged:
        if state.request_manager.is_ready(voter_id, now_ms):
            request = EndQuorumEpochRequest(
                state.node_id,
                state.epoch,
                resigned.preferred,
                state.member.endpoints,
                state.member.cluster_id,
            )
            state.send(voter_id, voters.endpoints(voter_id), request)
        wake_ms = min(wake_ms, state.request_manager.get(voter_id).wake_ms())
    return wake_ms
