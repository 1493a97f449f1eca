"""Changes of the voters: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter at the leader, and a follower's own update.

Pure functions over a QuorumState. Follows KIP-853: one change at a time, in force once appended, answered once
committed. The order of checks is Kafka's.
"""

from __future__ import annotations

from kafkacompat.ids import NO_OFFSET, ZERO_UUID
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.elections import has_valid_cluster_id
from kafkacompat.raft.leader_state import LeaderState, VoterChange
from kafkacompat.raft.messages import (
    AddRaftVoterRequest,
    RaftVoterResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import NEVER_MS, FollowerState
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import LISTENERS_MAX, Endpoints, ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode

LAG_LIMIT_MS = 3_600_000
"""A replica that has not fetched for this long cannot become a voter."""


def own_voter(state: QuorumState) -> VoterNode:
    member = state.member
    low, high = member.kraft_versions
    return VoterNode(member.node_id, member.directory_id, member.endpoints, low, high)


def voters_to_state(state: QuorumState) -> VoterSet | None:
    """The voters that a new leader writes: a set that no log record has yet, or one with its own changed entry. None:
    nothing to write."""
    history = state.voters
    if history.kraft_version < 1:
        return None
    mine = own_voter(state)
    if history.latest_offset != NO_OFFSET and (not state.is_voter or history.latest.get(mine.id) == mine):
        return None
    return history.latest.replacing(mine)


def _answer(state: QuorumState, request_id: int, error: ErrorCode, message: str | None = None) -> None:
    state.reply(
        request_id,
        RaftVoterResponse(error, message, state.epoch, state.election.leader_id, state.leader_endpoints),
    )


def _precheck(state: QuorumState, leader: LeaderState) -> tuple[ErrorCode, str] | None:
    """The error that refuses any change at the moment."""
    if leader.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way"
    if leader.high_watermark == NO_OFFSET:
        return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything in its epoch yet"
    if state.voters.kraft_version < 1:
        return ErrorCode.UNSUPPORTED_VERSION, "kraft.version 0 has a static set of voters"
    if state.voters.latest_offset >= leader.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "the latest change of the voters is not committed yet"
    return None


def _has_default_listener(state: QuorumState, endpoints: Endpoints) -> bool:
    mine = state.member.endpoints
    return not mine or any(name == mine[0][0] for name, _, _ in endpoints)


def _append(state: QuorumState, leader: LeaderState, voters: VoterSet) -> int:
    return _append_batch(state, leader, voters, state.voters.kraft_version, 1, -1)


def _append_batch(
    state: QuorumState,
    leader: LeaderState,
    voters: VoterSet,
    kraft_version: int,
    record_count: int,
    proposal_id: int,
) -> int:
    base = state.log.end
    end = base + record_count
    if len(state.voters.latest) == 1:
        # A sole voter hears of nobody. The second one gets the time of check-quorum for its next fetch.
        leader.check_quorum_at_ms = state.now_ms + state.check_quorum_ms
    state.log.append(state.epoch, end)
    state.voters.add_at(end - 1, voters, kraft_version)
    leader.update_voter_and_observer_states(voters)
    state.effects.append(effect.AppendVoters(base, end, state.epoch, voters, kraft_version, proposal_id))
    return end


# AddRaftVoter.


def handle_add_voter_request(state: QuorumState, request_id: int, request: AddRaftVoterRequest) -> None:
    refusal = _check_add(state, request)
    if refusal is not None:
        _answer(state, request_id, *refusal)
        return
    leader = state.leader
    assert leader is not None
    voter = request.voter
    deadline_ms = state.now_ms + min(request.timeout_ms, state.settings.request_timeout_ms)
    leader.change = VoterChange(request_id, voter, deadline_ms, request.ack_when_committed)
    state.effects.append(effect.ProbeVoter(ReplicaKey(voter.id, voter.directory_id), voter.listeners))


def _check_add(state: QuorumState, request: AddRaftVoterRequest) -> tuple[ErrorCode, str] | None:
    if not has_valid_cluster_id(state, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster"
    leader = state.leader
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum"
    voter = request.voter
    if voter.id < 0 or voter.directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
    if len(voter.listeners) > LISTENERS_MAX:
        return ErrorCode.INVALID_REQUEST, f"voter {voter.id} has more than {LISTENERS_MAX} endpoints"
    if not _has_default_listener(state, voter.listeners):
        return ErrorCode.INVALID_REQUEST, f"voter {voter.id} has no endpoint for the default listener"
    refusal = _precheck(state, leader)
    if refusal is None and voter.id in state.voters.latest.ids:
        return ErrorCode.DUPLICATE_VOTER, f"node {voter.id} is a voter already"
    return refusal


def voter_probed(state: QuorumState, event: events.VoterProbed) -> bool:
    """Returns whether the log has grown."""
    leader = state.leader
    change = leader.change if leader is not None else None
    if leader is None or change is None or change.end_offset != NO_OFFSET:
        return False
    voter = change.voter
    key = ReplicaKey(voter.id, voter.directory_id)
    if key != event.voter:
        return False
    level = state.voters.kraft_version
    if event.supported is None:
        refusal = (ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} did not say what it supports")
    elif not event.supported[0] <= level <= event.supported[1]:
        refusal = (ErrorCode.INVALID_REQUEST, f"node {voter.id} does not support kraft.version {level}")
    elif not _is_caught_up(state, leader, key):
        refusal = (ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} lags behind")
    else:
        low, high = event.supported
        added = VoterNode(voter.id, voter.directory_id, voter.listeners, low, high)
        change.end_offset = _append(state, leader, state.voters.latest.with_voter(added))
        if not change.ack_when_committed and change.request_id is not None:
            _answer(state, change.request_id, ErrorCode.NONE)
            change.request_id = None
        return True
    if change.request_id is not None:
        _answer(state, change.request_id, *refusal)
    leader.change = None
    return False


def _is_caught_up(state: QuorumState, leader: LeaderState, key: ReplicaKey) -> bool:
    replica = leader.observers.get(key)
    return (
        replica is not None
        and replica.last_caught_up_ms >= 0
        and replica.last_fetch_ms + LAG_LIMIT_MS > state.now_ms
    )


# RemoveRaftVoter.


def handle_remove_voter_request(state: QuorumState, request_id: int, request: RemoveRaftVoterRequest) -> bool:
    """Returns whether the log has grown."""
    refusal = _check_remove(state, request)
    if refusal is not None:
        _answer(state, request_id, *refusal)
        return False
    leader = state.leader
    assert leader is not None
    voter = state.voters.latest.get(request.voter.id)
    assert voter is not None
    deadline_ms = state.now_ms + state.settings.request_timeout_ms
    change = VoterChange(request_id, voter, deadline_ms)
    leader.change = change
    change.end_offset = _append(state, leader, state.voters.latest.without(request.voter))
    return True


def _check_remove(state: QuorumState, request: RemoveRaftVoterRequest) -> tuple[ErrorCode, str] | None:
    if not has_valid_cluster_id(state, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster"
    leader = state.leader
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum"
    if request.voter.id < 0 or request.voter.directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
    refusal = _precheck(state, leader)
    if refusal is not None:
        return refusal
    voter = state.voters.latest.get(request.voter.id)
    if voter is None or voter.directory_id != request.voter.directory_id:
        return ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.id} with that directory is no voter"
    if len(state.voters.latest) == 1:
        return ErrorCode.VOTER_NOT_FOUND, "the last voter cannot be removed"
    return None


# UpdateRaftVoter.


def handle_update_voter_request(state: QuorumState, request_id: int, request: UpdateRaftVoterRequest) -> bool:
    """Returns whether the log has grown. The request is answered once the change is appended."""
    error = _check_update(state, request)
    leader = state.leader
    grown = False
    if error is ErrorCode.NONE and leader is not None:
        voter = request.voter
        key = ReplicaKey(voter.id, voter.directory_id)
        leader.update_check_quorum_for_following_voter(
            key, state.voters.latest, state.check_quorum_ms, state.now_ms
        )
        if state.voters.kraft_version < 1:
            leader.reported[voter.id] = voter
        elif state.voters.latest.get(voter.id) != voter:
            _append(state, leader, state.voters.latest.replacing(voter))
            grown = True
    _answer(state, request_id, error)
    return grown


def _check_update(state: QuorumState, request: UpdateRaftVoterRequest) -> ErrorCode:
    if not has_valid_cluster_id(state, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    leader = state.leader
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    voter = request.voter
    has_key = voter.id >= 0 and voter.directory_id != ZERO_UUID
    has_range = 0 <= voter.min_kraft_version <= voter.max_kraft_version
    has_endpoints = len(voter.listeners) <= LISTENERS_MAX and _has_default_listener(state, voter.listeners)
    if not (has_key and has_range and has_endpoints):
        return ErrorCode.INVALID_REQUEST
    if leader.change is not None or leader.high_watermark == NO_OFFSET:
        return ErrorCode.REQUEST_TIMED_OUT
    level = state.voters.kraft_version
    if level >= 1 and state.voters.latest_offset >= leader.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT
    if not voter.min_kraft_version <= level <= voter.max_kraft_version:
        return ErrorCode.INVALID_REQUEST
    if not state.voters.latest.contains(ReplicaKey(voter.id, voter.directory_id)):
        return ErrorCode.VOTER_NOT_FOUND
    return ErrorCode.NONE


def update_request(state: QuorumState, follower: FollowerState) -> UpdateRaftVoterRequest | None:
    """A voter's update of its own entry, if the voter set has wrong data; with kraft.version 0 until the leader of the
    epoch has taken it, because the leader keeps it only in memory."""
    if state.now_ms < follower.update_voter_at_ms or not state.is_voter:
        return None
    follower.update_voter_at_ms = state.now_ms + state.settings.fetch_timeout_ms
    mine = own_voter(state)
    if state.voters.kraft_version < 1:
        is_known = follower.has_updated_leader
    else:
        is_known = state.voters.latest.get(state.node_id) == mine
    return None if is_known else UpdateRaftVoterRequest(state.epoch, mine, state.member.cluster_id)


def join_request(
    state: QuorumState, follower: FollowerState
) -> AddRaftVoterRequest | RemoveRaftVoterRequest | None:
    """The request of an observer with auto join: first to remove its former self, whose disk was lost, then to be
    added."""
    member, voters = state.member, state.voters.latest
    if not member.joins or state.is_voter or state.voters.kraft_version < 1:
        return None
    if state.now_ms < follower.update_voter_at_ms:
        return None
    follower.update_voter_at_ms = state.now_ms + state.settings.fetch_timeout_ms
    if state.node_id in voters.ids:
        return RemoveRaftVoterRequest(voters.key(state.node_id), member.cluster_id)
    timeout_ms = state.settings.request_timeout_ms
    return AddRaftVoterRequest(own_voter(state), timeout_ms, False, member.cluster_id)


# kraft.version.


def kraft_version_refusal(state: QuorumState) -> ErrorCode:
    """NONE if this leader may raise kraft.version to 1 now."""
    leader = state.leader
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if leader.high_watermark == NO_OFFSET or leader.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT
    if state.voters.kraft_version < 1 and len(_ready_voters(state, leader)) == len(state.voters.latest):
        return ErrorCode.NONE
    return ErrorCode.INVALID_UPDATE_VERSION


def _ready_voters(state: QuorumState, leader: LeaderState) -> list[VoterNode]:
    """The voters that have reported themselves with UpdateRaftVoter and support the new version."""
    known = {**leader.reported, state.node_id: own_voter(state)}
    return [
        known[node_id]
        for node_id in state.voters.latest.ids
        if node_id in known and known[node_id].min_kraft_version <= 1 <= known[node_id].max_kraft_version
    ]


def raise_kraft_version(state: QuorumState, event: events.RaiseKraftVersion) -> bool:
    """Returns whether the log has grown. Every voter must be ready."""
    error = kraft_version_refusal(state)
    leader = state.leader
    if error is ErrorCode.NONE and leader is not None:
        _append_batch(state, leader, VoterSet(_ready_voters(state, leader)), 1, 2, event.proposal_id)
        return True
    state.effects.append(effect.RefuseProposal(event.proposal_id, error))
    return False


# Commitment and time.


def committed(state: QuorumState, leader: LeaderState) -> None:
    """The high watermark has moved: answer a change that it covers. A leader that is no longer a voter steps down now,
    not before."""
    change = leader.change
    if change is not None and NO_OFFSET < change.end_offset <= leader.high_watermark:
        leader.change = None
        if change.request_id is not None:
            _answer(state, change.request_id, ErrorCode.NONE)
    if not state.is_voter and state.voters.latest_offset < leader.high_watermark:
        state.become_resigned()


def poll_change(state: QuorumState, leader: LeaderState) -> int:
    """End the wait for a change at its deadline. An appended record stays. Returns the time of the next check."""
    change = leader.change
    if change is None:
        return NEVER_MS
    if state.now_ms < change.deadline_ms:
        return change.deadline_ms
    leader.change = None
    if change.request_id is not None:
        _answer(state, change.request_id, ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")
    return NEVER_MS
