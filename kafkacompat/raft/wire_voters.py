"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-853) for the quorum core, and its answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from kafkacompat.ids import NO_LEADER
from kafkacompat.raft import messages as core
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import LISTENERS_MAX, Endpoints, ReplicaKey
from kafkacompat.wire.messages import (
    add_raft_voter_response,
    remove_raft_voter_response,
    update_raft_voter_response,
)
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkacompat.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest


def endpoints_of(listeners: Iterable[Any]) -> Endpoints:
    """One more than a voter may have shows that it has too many."""
    return tuple((each.name, each.host, each.port) for each in islice(listeners, LISTENERS_MAX + 1))


def leader_address(endpoints: Endpoints, listener_name: str) -> tuple[str, int] | None:
    """The address of a named listener. None if there is none of that name."""
    return next(((host, port) for name, host, port in endpoints if name == listener_name), None)


def decode_add(
    message: AddRaftVoterRequest, api_version: int, cluster_id: str | None
) -> core.AddRaftVoterRequest:
    voter = VoterNode(message.voter_id, message.voter_directory_id, endpoints_of(message.listeners))
    return core.AddRaftVoterRequest(voter, message.timeout_ms, message.ack_when_committed, message.cluster_id)


def decode_remove(
    message: RemoveRaftVoterRequest, api_version: int, cluster_id: str | None
) -> core.RemoveRaftVoterRequest:
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    return core.RemoveRaftVoterRequest(key, message.cluster_id)


def decode_update(
    message: UpdateRaftVoterRequest, api_version: int, cluster_id: str | None
) -> core.UpdateRaftVoterRequest:
    versions = message.kraft_version_feature
    voter = VoterNode(
        message.voter_id,
        message.voter_directory_id,
        endpoints_of(message.listeners),
        versions.min_supported_version,
        versions.max_supported_version,
    )
    return core.UpdateRaftVoterRequest(message.current_leader_epoch, voter, message.cluster_id)


def encode_add(
    request: Any, response: core.RaftVoterResponse, api_version: int, listener_name: str
) -> add_raft_voter_response.AddRaftVoterResponse:
    return add_raft_voter_response.AddRaftVoterResponse(
        error_code=response.error, error_message=response.message or response.error.name
    )


def encode_remove(
    request: Any, response: core.RaftVoterResponse, api_version: int, listener_name: str
) -> remove_raft_voter_response.RemoveRaftVoterResponse:
    return remove_raft_voter_response.RemoveRaftVoterResponse(
        error_code=response.error, error_message=response.message or response.error.name
    )


def encode_update(
    request: Any, response: core.RaftVoterResponse, api_version: int, listener_name: str
) -> update_raft_voter_response.UpdateRaftVoterResponse:
    leader = update_raft_voter_response.CurrentLeader(
        leader_id=response.leader_id, leader_epoch=response.epoch
    )
    address = leader_address(response.leader_endpoints, listener_name)
    if address is not None and response.leader_id != NO_LEADER:
        leader.host, leader.port = address
    return update_raft_voter_response.UpdateRaftVoterResponse(
        error_code=response.error, current_leader=leader
    )
