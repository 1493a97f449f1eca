"""A leader's work: its epoch's first batch, proposals, fetches of replicas, snapshots for them, the high watermark.

Pure functions over a QuorumState. Follows KIP-595, KIP-630 (snapshots), KIP-853, and KIP-1166's high watermark in the
fetch.
"""

from __future__ import annotations

from kafkacompat.ids import NO_OFFSET
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events, membership
from kafkacompat.raft.elections import has_valid_cluster_id
from kafkacompat.raft.leader_state import LeaderState, ParkedFetch
from kafkacompat.raft.log_shape import BOOTSTRAP_SNAPSHOT, Validity
from kafkacompat.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import Role
from kafkacompat.raft.voter_set import ReplicaKey
from kafkacompat.wire.errors import ErrorCode

MAX_PARKED_FETCHES = 10_000
"""Beyond this a fetch is answered at once, without records."""


def on_become_leader(state: QuorumState) -> None:
    """Become leader and begin the epoch's log."""
    leader = state.become_leader()
    voters = state.voters.latest
    base = state.log.end
    kraft_version = state.voters.kraft_version
    named = membership.voters_to_state(state)
    end = base + (1 if named is None else 3)
    state.log.append(state.epoch, end)
    state.effects.append(
        effect.AppendEpochStart(
            base, end, state.epoch, state.node_id, voters.ids, leader.granting, named, kraft_version
        )
    )
    if named is not None:
        # Offsets in the batch: LeaderChange, KRaftVersion, Voters.
        state.voters.add_at(base + 2, named, kraft_version)
        leader.update_voter_and_observer_states(named)
    state.ask_sync()


def propose(state: QuorumState, proposal: events.Propose) -> None:
    leader = state.leader
    if leader is None or proposal.epoch != state.epoch:
        state.effects.append(effect.RefuseProposal(proposal.proposal_id, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    base = state.log.end
    end = base + proposal.record_count
    state.log.append(state.epoch, end)
    state.effects.append(effect.AppendRecords(base, end, state.epoch, proposal.payload, proposal.proposal_id))
    appended(state, leader)


def appended(state: QuorumState, leader: LeaderState) -> None:
    """The leader's log has grown: answer the fetches that wait for records, and ask for a sync."""
    end = state.log.end
    _complete(state, leader, [key for key, each in leader.parked.items() if each.request.fetch_offset < end])
    state.ask_sync()


def own_durable_end(state: QuorumState) -> int:
    """The end offset that the leader itself counts with: only what is fsynced."""
    return state.log.durable_end


def maybe_update_leader_high_watermark(state: QuorumState, leader: LeaderState) -> None:
    if not leader.maybe_update_high_watermark(state.voters.latest, own_durable_end(state)):
        return
    state.hear(leader.high_watermark)
    membership.committed(state, leader)
    if state.leader is leader:
        # All of them: a fetch below version 18 does not tell which high watermark its sender knows.
        _complete(state, leader, list(leader.parked))


def validate_leader_only_request(state: QuorumState, epoch: int) -> ErrorCode:
    """NONE if this node leads the request's epoch."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if state.leader is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER


# Fetch.


def _build_fetch_response(state: QuorumState, error: ErrorCode) -> FetchResponse:
    return FetchResponse(
        error,
        state.epoch,
        state.election.leader_id,
        state.leader_endpoints,
        state.leader.high_watermark if state.leader is not None else NO_OFFSET,
        state.log.start,
    )


def handle_fetch_request(state: QuorumState, request_id: int, request: FetchRequest) -> None:
    if not has_valid_cluster_id(state, request.cluster_id):
        response = _build_fetch_response(state, ErrorCode.NONE)
        response.top_level_error = ErrorCode.INCONSISTENT_CLUSTER_ID
        state.reply(request_id, response)
        return
    if (
        request.max_wait_ms < 0
        or request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.epoch
        or request.replica == state.key
    ):
        state.reply(request_id, _build_fetch_response(state, ErrorCode.INVALID_REQUEST))
        return
    error = validate_leader_only_request(state, request.epoch)
    if error is not ErrorCode.NONE:
        state.reply(request_id, _build_fetch_response(state, error))
        return
    leader = state.leader
    assert leader is not None
    parked = leader.parked.pop(request.replica, None)
    if parked is not None:
        state.reply(parked.request_id, _build_fetch_response(state, ErrorCode.NONE))
    if not _try_complete_fetch_request(state, leader, request_id, request, request.max_wait_ms == 0):
        if len(leader.parked) >= MAX_PARKED_FETCHES:
            state.reply(request_id, _build_fetch_response(state, ErrorCode.NONE))
            return
        leader.parked[request.replica] = ParkedFetch(request_id, request, state.now_ms + request.max_wait_ms)


def _try_complete_fetch_request(
    state: QuorumState, leader: LeaderState, request_id: int, request: FetchRequest, must_answer: bool
) -> bool:
    """Record what the fetch acknowledges. Answer if there is something to send, or if `must_answer`. Returns False to
    park it."""
    validity, offset = state.log.validate(request.fetch_offset, request.last_fetched_epoch)
    if validity is not Validity.VALID:
        response = _build_fetch_response(state, ErrorCode.NONE)
        if validity is Validity.DIVERGING:
            response.diverging = offset
        else:
            response.snapshot_id = offset
        state.reply(request_id, response)
        return True
    voters = state.voters.latest
    if request.replica.id >= 0 and request.replica.id != state.node_id:
        leader.update_check_quorum_for_following_voter(
            request.replica, voters, state.check_quorum_ms, state.now_ms
        )
        if leader.update_replica_state(
            request.replica, voters, request.fetch_offset, state.log.end, state.now_ms
        ):
            maybe_update_leader_high_watermark(state, leader)
            if state.leader is not leader:
                state.reply(request_id, _build_fetch_response(state, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return True
    if request.fetch_offset < state.log.end:
        state.effects.append(
            effect.ReplyWithRecords(
                request_id,
                _build_fetch_response(state, ErrorCode.NONE),
                request.fetch_offset,
                request.max_bytes,
            )
        )
        return True
    if must_answer or request.high_watermark < leader.high_watermark:
        state.reply(request_id, _build_fetch_response(state, ErrorCode.NONE))
        return True
    return False


def _complete(state: QuorumState, leader: LeaderState, due: list[ReplicaKey]) -> None:
    """Answer these waiting fetches."""
    for key in due:
        parked = leader.parked.pop(key, None)
        if parked is not None:
            _try_complete_fetch_request(state, leader, parked.request_id, parked.request, True)


# FetchSnapshot.


def handle_fetch_snapshot_request(state: QuorumState, request_id: int, request: FetchSnapshotRequest) -> None:
    response = FetchSnapshotResponse(
        ErrorCode.NONE,
        state.epoch,
        state.election.leader_id,
        state.leader_endpoints,
        request.snapshot_id,
        0,
        request.position,
    )
    if not has_valid_cluster_id(state, request.cluster_id):
        response.top_level_error = ErrorCode.INCONSISTENT_CLUSTER_ID
        state.reply(request_id, response)
        return
    response.error = validate_leader_only_request(state, request.epoch)
    if response.error is ErrorCode.NONE:
        size = state.log.snapshots.get(request.snapshot_id)
        if size is None or request.snapshot_id == BOOTSTRAP_SNAPSHOT:
            response.error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size:
            response.error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            assert state.leader is not None
            response.size_bytes = size
            state.leader.update_check_quorum_for_following_voter(
                request.replica, state.voters.latest, state.check_quorum_ms, state.now_ms
            )
            state.effects.append(effect.ReplyWithSnapshot(request_id, response, request.max_bytes))
            return
    state.reply(request_id, response)


# Time.


def poll_leader(state: QuorumState) -> int:
    """Handle check-quorum, expired fetches, and BeginQuorumEpoch to voters that do not fetch. Returns the time of the
    next check; -1: at once."""
    leader = state.leader
    assert leader is not None
    now_ms = state.now_ms
    voters = state.voters.latest
    alone = len(voters) == 1 and voters.get(state.node_id) is not None
    if not alone and now_ms >= leader.check_quorum_at_ms:
        state.become_resigned()
        return -1
    wake_ms = now_ms + state.settings.fetch_timeout_ms if alone else leader.check_quorum_at_ms
    expired = [key for key, parked in leader.parked.items() if now_ms >= parked.deadline_ms]
    for key in expired:
        state.reply(leader.parked.pop(key).request_id, _build_fetch_response(state, ErrorCode.NONE))
    for parked in leader.parked.values():
        if parked.deadline_ms < wake_ms:
            wake_ms = parked.deadline_ms
    wake_ms = min(wake_ms, membership.poll_change(state, leader))
    if state.leader is not leader:
        return -1
    if now_ms >= leader.begin_at_ms:
        leader.begin_at_ms = now_ms + state.settings.fetch_timeout_ms // 2
        _send_begin(state, leader)
    return min(wake_ms, leader.begin_at_ms)


def _send_begin(state: QuorumState, leader: LeaderState) -> None:
    quiet_since_ms = state.now_ms - state.settings.fetch_timeout_ms // 2
    voters = state.voters.latest
    for voter_id in sorted(leader.voters):
        last_fetch_ms = leader.voters[voter_id].last_fetch_ms
        if (last_fetch_ms < 0 or last_fetch_ms <= quiet_since_ms) and state.request_manager.is_ready(
            voter_id, state.now_ms
        ):
            request = BeginQuorumEpochRequest(
                voters.key(voter_id),
                state.node_id,
                state.epoch,
                state.member.endpoints,
                state.member.cluster_id,
            )
            state.send(voter_id, voters.endpoints(voter_id), request)


def maybe_transition_to_leader(state: QuorumState) -> bool:
    if (
        state.role is Role.CANDIDATE
        and state.nominee is not None
        and state.nominee.epoch_election.is_vote_granted
    ):
        on_become_leader(state)
        return True
    return False
