"""A follower's work: fetch the log from the leader, truncate where it diverges, take snapshots, find an unknown
leader.

Pure functions over a QuorumState. Observers follow in the same way but never stand for election. A fetch offset
acknowledges durable records. So a node that may vote fetches again only when everything it has is fsynced. Follows
KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events, membership
from kafkacompat.raft.elections import CommonOutcome, maybe_handle_common_response
from kafkacompat.raft.messages import (
    Batch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kafkacompat.raft.quorum_state import QuorumState
from kafkacompat.raft.roles import FollowerState, SnapshotDownload
from kafkacompat.raft.voter_set import Endpoints
from kafkacompat.wire.errors import ErrorCode


def may_acknowledge(state: QuorumState) -> bool:
    """Whether this node's fetch offset may acknowledge the whole log, because it is durable."""
    return not state.member.can_vote or state.log.durable_end >= state.log.end


def _build_fetch_request(state: QuorumState) -> FetchRequest:
    settings = state.settings
    return FetchRequest(
        state.key,
        state.epoch,
        state.log.end,
        state.log.last_epoch,
        settings.fetch_max_wait_ms,
        settings.fetch_max_bytes,
        state.high_watermark,
        state.member.cluster_id,
    )


# Answers.


def handle_fetch_response(
    state: QuorumState, node_id: int, request: FetchRequest, response: FetchResponse
) -> bool:
    if response.top_level_error is not ErrorCode.NONE:
        return False
    outcome = maybe_handle_common_response(
        state, response.error, response.epoch, response.leader_id, response.leader_endpoints
    )
    if outcome is not CommonOutcome.PROCEED:
        return outcome is CommonOutcome.HANDLED
    follower = state.follower
    if follower is None or response.epoch != state.epoch or request.epoch != state.epoch:
        return True
    if request.fetch_offset != state.log.end or request.last_fetched_epoch != state.log.last_epoch:
        # Two fetches were in flight, one of them to a bootstrap address. The other one's answer has changed the log.
        return True
    if response.diverging is not None:
        point = state.log.truncation_point(response.diverging)
        if point < state.log.end:
            state.truncate(point)
    elif response.snapshot_id is not None:
        _see_snapshot(state, follower, response.snapshot_id)
    else:
        if response.records and not _take_records(state, response):
            return False
        # Only now is the whole log known to equal the leader's. After a truncation it may still diverge further below.
        state.hear(response.high_watermark)
    _heard_from_leader(state, follower)
    return True


def _heard_from_leader(state: QuorumState, follower: FollowerState) -> None:
    follower.deadline_ms = state.now_ms + state.settings.fetch_timeout_ms
    follower.has_fetched = True


def _take_records(state: QuorumState, response: FetchResponse) -> bool:
    """Append the batches that fit. Returns False if not even the first one fits."""
    fitting: list[Batch] = []
    for batch in response.records:
        if (
            batch.base_offset != state.log.end
            or batch.end_offset <= batch.base_offset
            or not state.log.last_epoch <= batch.epoch <= response.epoch
        ):
            break
        fitting.append(batch)
        state.log.append(batch.epoch, batch.end_offset)
        if batch.voters is not None:
            state.voters.add_at(batch.end_offset - 1, batch.voters, batch.kraft_version)
    if not fitting:
        return False
    state.effects.append(effect.AppendFetched(tuple(fitting)))
    if state.member.can_vote:
        state.ask_sync()
    return True


# Snapshots.


def _see_snapshot(state: QuorumState, follower: FollowerState, snapshot_id: OffsetAndEpoch) -> None:
    if snapshot_id.offset < state.log.start or snapshot_id.offset < state.high_watermark:
        # Everything in the snapshot is here already. The leader offers it because it does not know our end offset yet.
        return
    if follower.download is None or follower.download.snapshot_id != snapshot_id:
        follower.download = SnapshotDownload(snapshot_id)


def handle_fetch_snapshot_response(
    state: QuorumState, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> bool:
    follower = state.follower
    download = follower.download if follower is not None else None
    if response.top_level_error is not ErrorCode.NONE:
        # Kafka 4.3 cannot send a partition's error here. Drop the snapshot; the next fetch returns one again.
        if follower is not None:
            follower.download = None
        return False
    outcome = maybe_handle_common_response(
        state, response.error, response.epoch, response.leader_id, response.leader_endpoints
    )
    if state.follower is not follower:
        return True
    if outcome is CommonOutcome.FAILED:
        if follower is not None:
            follower.download = None
        return False
    if outcome is CommonOutcome.HANDLED or follower is None or download is None:
        return True
    if (
        request.epoch != state.epoch
        or response.snapshot_id != download.snapshot_id
        or response.position != download.position
        or download.is_installing
    ):
        return True
    end = response.position + len(response.data)
    if end > response.size_bytes or not response.data:
        follower.download = None
        return False
    state.effects.append(effect.WriteSnapshotChunk(download.snapshot_id, response.position, response.data))
    download.position = end
    if end == response.size_bytes:
        download.is_installing = True
        state.effects.append(effect.InstallSnapshot(download.snapshot_id, end))
    _heard_from_leader(state, follower)
    return True


def snapshot_installed(state: QuorumState, event: events.SnapshotInstalled) -> None:
    """The snapshot has replaced the log."""
    state.restarted_at(event.snapshot_id, event.size_bytes)
    state.voters.reset(event.snapshot_id.offset - 1, event.voters, event.kraft_version)
    state.advance(event.snapshot_id.offset)
    if state.follower is not None:
        state.follower.download = None
        # It was busy with the leader's own bytes meanwhile, so the leader counts as heard.
        _heard_from_leader(state, state.follower)


# Asking.


def poll_follower(state: QuorumState) -> int:
    """Stand for election if the leader is silent, otherwise fetch. Returns the time of the next check; -1: at once."""
    follower = state.follower
    assert follower is not None
    now_ms = state.now_ms
    if follower.download is not None and follower.download.is_installing:
        return follower.deadline_ms
    if now_ms >= follower.deadline_ms:
        if state.stands:
            state.become_prospective()
            return -1
        # An observer continues, and asks the bootstrap servers in between.
        follower.deadline_ms = now_ms + state.settings.fetch_timeout_ms
        wake_ms = _maybe_send_fetch_to_any_bootstrap(state, follower.deadline_ms)
    else:
        wake_ms = follower.deadline_ms
    if not may_acknowledge(state):
        state.ask_sync()
        return wake_ms
    request_manager = state.request_manager
    leader_id = follower.leader_id
    if not request_manager.is_ready(leader_id, now_ms):
        peer = request_manager.get(leader_id)
        if peer.correlation_id < 0:
            _maybe_send_fetch_to_any_bootstrap(state, wake_ms)
        return min(wake_ms, peer.wake_ms())
    change = membership.update_request(state, follower) or membership.join_request(state, follower)
    if change is not None:
        state.send(leader_id, follower.endpoints, change)
    elif follower.download is not None:
        _fetch_chunk(state, leader_id, follower.endpoints, follower.download)
    else:
        state.send(leader_id, follower.endpoints, _build_fetch_request(state))
    return min(wake_ms, request_manager.get(leader_id).wake_ms())


def _fetch_chunk(
    state: QuorumState, leader_id: int, endpoints: Endpoints, download: SnapshotDownload
) -> None:
    request = FetchSnapshotRequest(
        state.key,
        state.epoch,
        download.snapshot_id,
        download.position,
        state.settings.fetch_snapshot_max_bytes,
        state.member.cluster_id,
    )
    state.send(leader_id, endpoints, request)


def poll_unattached(state: QuorumState) -> int:
    """Wait for a voter's election timeout. Meanwhile, and always for observers, ask the bootstrap servers for the
    leader."""
    now_ms = state.now_ms
    if now_ms >= state.unattached.deadline_ms:
        if state.stands:
            state.become_prospective()
            return -1
        state.unattached.deadline_ms = state.election_deadline_ms()
    if not may_acknowledge(state):
        state.ask_sync()
        return state.unattached.deadline_ms
    return _maybe_send_fetch_to_any_bootstrap(state, state.unattached.deadline_ms)


def _maybe_send_fetch_to_any_bootstrap(state: QuorumState, wake_ms: int) -> int:
    """Fetch from a random bootstrap server that is ready, unless such a fetch is in flight."""
    now_ms = state.now_ms
    request_manager = state.request_manager
    servers = state.member.bootstrap
    if not servers or not may_acknowledge(state):
        return wake_ms
    ready = [server for server in servers if request_manager.is_ready(server[0], now_ms)]
    if ready and all(request_manager.get(server_id).correlation_id < 0 for server_id, _ in servers):
        server_id, endpoints = ready[state.random.randrange(len(ready))]
        state.send(server_id, endpoints, _build_fetch_request(state))
    for server_id, _ in servers:
        again_ms = request_manager.get(server_id).wake_ms()
        if now_ms < again_ms < wake_ms:
            wake_ms = again_ms
    return wake_ms
