"""Raft requests of other nodes for the quorum core, and the core's answers as wire messages.

It handles topic and partition structure, cluster id, tags and error levels. Pure. Roles are unknown here. Follows
KIP-595, KIP-630, KIP-853. Kafka 4.3 cannot serialise its own partition error in FetchSnapshot; here the field is empty
instead of null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_LEADER, OffsetAndEpoch
from kafkacompat.raft import messages as core
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import LISTENERS_MAX, Endpoints, ReplicaKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import (
    add_raft_voter_response,
    begin_quorum_epoch_response,
    end_quorum_epoch_response,
    fetch_response,
    fetch_snapshot_response,
    remove_raft_voter_response,
    update_raft_voter_response,
    vote_response,
)
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from kafkacompat.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from kafkacompat.wire.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_snapshot_request import FetchSnapshotRequest
from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkacompat.wire.messages.update_raft_voter_request import UpdateRaftVoterRequest
from kafkacompat.wire.messages.vote_request import VoteRequest


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


def _error_message(response: core.RaftVoterResponse) -> str | None:
    """None for a success, as from Apache Kafka 4.3 on."""
    if response.error is ErrorCode.NONE:
        return None
    return response.message or response.error.name


def encode_add(
    request: Any, response: core.RaftVoterResponse, api_version: int, listener_name: str
) -> add_raft_voter_response.AddRaftVoterResponse:
    return add_raft_voter_response.AddRaftVoterResponse(
        error_code=response.error, error_message=_error_message(response)
    )


def encode_remove(
    request: Any, response: core.RaftVoterResponse, api_version: int, listener_name: str
) -> remove_raft_voter_response.RemoveRaftVoterResponse:
    return remove_raft_voter_response.RemoveRaftVoterResponse(
        error_code=response.error, error_message=_error_message(response)
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


TOPIC_IDS_SINCE = 13
"""The first Fetch version that names topics by id only."""
FETCH_LEADER_SINCE = 12
"""The first Fetch version in which raft can send the leader, the diverging epoch and the snapshot id. No node uses an
older one."""
FETCH_ENDPOINTS_SINCE = 17
"""The first Fetch version in which Kafka's raft sends the leader's address."""
ENDPOINTS_SINCE = 1
"""The same for the other requests."""


class QuorumRequestRefused(Exception):
    """The request does not reach the core. `response` is the complete answer."""

    def __init__(self, response: Any) -> None:
        super().__init__("refused")
        self.response = response


def decode_request(message: Any, api_version: int, cluster_id: str | None) -> core.Request:
    """The core's request. Raises QuorumRequestRefused with the answer if it is for another cluster or partition."""
    return _DECODERS[type(message)](message, api_version, cluster_id)


def encode_response(
    request: Any, response: core.Response, api_version: int, listener_name: str, records: Any = b""
) -> Any:
    """The answer to the wire message `request`. `records` are the bytes for a Fetch response."""
    encode = _ENCODERS[type(request)]
    if isinstance(response, core.RaftVoterResponse):
        return encode(request, response, api_version, listener_name)
    top_level_error = response.top_level_error
    if top_level_error is not ErrorCode.NONE:
        return _TOP_LEVEL[type(request)](error_code=top_level_error)
    if isinstance(response, core.FetchResponse):
        return encode(request, response, api_version, listener_name, records)
    return encode(request, response, api_version, listener_name)


def _only_partition(message: Any, cluster_id: str | None) -> Any:
    """The only partition in the request."""
    _check_cluster(message, cluster_id)
    topics = message.topics
    if len(topics) == 1 and topics[0].topic_name == METADATA_TOPIC:
        partitions = topics[0].partitions
        if len(partitions) == 1 and partitions[0].partition_index == 0:
            return partitions[0]
    raise QuorumRequestRefused(_TOP_LEVEL[type(message)](error_code=ErrorCode.INVALID_REQUEST))


def _check_cluster(message: Any, cluster_id: str | None) -> None:
    if message.cluster_id is not None and cluster_id is not None and message.cluster_id != cluster_id:
        raise QuorumRequestRefused(_TOP_LEVEL[type(message)](error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))


def _addressee(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return ReplicaKey(voter_id, directory_id) if voter_id >= 0 else None


def _node_endpoints(node: Any, response: Any, known_since: int, api_version: int, listener_name: str) -> Any:
    address = leader_address(response.leader_endpoints, listener_name)
    if address is None or response.leader_id < 0 or api_version < known_since:
        return []
    return [node(node_id=response.leader_id, host=address[0], port=address[1])]


# Vote, BeginQuorumEpoch, EndQuorumEpoch.


def _decode_vote(message: VoteRequest, api_version: int, cluster_id: str | None) -> core.VoteRequest:
    asked = _only_partition(message, cluster_id)
    return core.VoteRequest(
        ReplicaKey(asked.replica_id, asked.replica_directory_id),
        _addressee(message.voter_id, asked.voter_directory_id),
        asked.replica_epoch,
        asked.last_offset_epoch,
        asked.last_offset,
        asked.pre_vote,
        message.cluster_id,
    )


def _encode_vote(
    request: VoteRequest, response: core.VoteResponse, api_version: int, listener_name: str
) -> vote_response.VoteResponse:
    partition = vote_response.PartitionData(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    return vote_response.VoteResponse(
        topics=[vote_response.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_node_endpoints(
            vote_response.NodeEndpoint, response, ENDPOINTS_SINCE, api_version, listener_name
        ),
    )


def _decode_begin(
    message: BeginQuorumEpochRequest, api_version: int, cluster_id: str | None
) -> core.BeginQuorumEpochRequest:
    asked = _only_partition(message, cluster_id)
    return core.BeginQuorumEpochRequest(
        _addressee(message.voter_id, asked.voter_directory_id),
        asked.leader_id,
        asked.leader_epoch,
        endpoints_of(message.leader_endpoints),
        message.cluster_id,
    )


def _decode_end(
    message: EndQuorumEpochRequest, api_version: int, cluster_id: str | None
) -> core.EndQuorumEpochRequest:
    asked = _only_partition(message, cluster_id)
    preferred = [
        ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in asked.preferred_candidates
    ]
    return core.EndQuorumEpochRequest(
        asked.leader_id,
        asked.leader_epoch,
        tuple(preferred or [ReplicaKey(each) for each in asked.preferred_successors]),
        endpoints_of(message.leader_endpoints),
        message.cluster_id,
    )


def _epoch_encoder(module: Any, response_class: Any) -> Callable[..., Any]:
    def encode(request: Any, response: core.QuorumEpochResponse, api_version: int, listener_name: str) -> Any:
        partition = module.PartitionData(
            partition_index=0,
            error_code=response.error,
            leader_id=response.leader_id,
            leader_epoch=response.epoch,
        )
        return response_class(
            topics=[module.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            node_endpoints=_node_endpoints(
                module.NodeEndpoint, response, ENDPOINTS_SINCE, api_version, listener_name
            ),
        )

    return encode


# Fetch.


def is_metadata_fetch(message: FetchRequest, api_version: int) -> bool:
    """Whether the request is about partition 0 of the metadata topic and nothing else."""
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition != 0:
        return False
    if api_version >= TOPIC_IDS_SINCE:
        return topics[0].topic_id == METADATA_TOPIC_ID
    return topics[0].topic == METADATA_TOPIC


def _decode_fetch(message: FetchRequest, api_version: int, cluster_id: str | None) -> core.FetchRequest:
    _check_cluster(message, cluster_id)
    if not is_metadata_fetch(message, api_version):
        raise QuorumRequestRefused(fetch_response.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    asked = message.topics[0].partitions[0]
    replica_id = message.replica_state.replica_id if message.replica_state is not None else -1
    return core.FetchRequest(
        ReplicaKey(replica_id if replica_id != -1 else message.replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        message.max_wait_ms,
        message.max_bytes,
        asked.high_watermark,
        message.cluster_id,
    )


def _encode_fetch(
    request: FetchRequest, response: core.FetchResponse, api_version: int, listener_name: str, records: Any
) -> fetch_response.FetchResponse:
    partition = fetch_response.PartitionData(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        records=records,
    )
    if api_version < FETCH_LEADER_SINCE:
        return fetch_response.FetchResponse(
            responses=[fetch_response.FetchableTopicResponse(topic=METADATA_TOPIC, partitions=[partition])]
        )
    partition.current_leader = fetch_response.LeaderIdAndEpoch(
        leader_id=response.leader_id, leader_epoch=response.epoch
    )
    if response.diverging is not None:
        partition.diverging_epoch = fetch_response.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.offset
        )
    if response.snapshot_id is not None:
        partition.snapshot_id = fetch_response.SnapshotId(
            end_offset=response.snapshot_id.offset, epoch=response.snapshot_id.epoch
        )
    topic = fetch_response.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return fetch_response.FetchResponse(
        responses=[topic],
        node_endpoints=_node_endpoints(
            fetch_response.NodeEndpoint, response, FETCH_ENDPOINTS_SINCE, api_version, listener_name
        ),
    )


# FetchSnapshot.


def _decode_fetch_snapshot(
    message: FetchSnapshotRequest, api_version: int, cluster_id: str | None
) -> core.FetchSnapshotRequest:
    _check_cluster(message, cluster_id)
    first = next(((topic, each) for topic in message.topics for each in topic.partitions), None)
    if first is None:
        raise QuorumRequestRefused(
            fetch_snapshot_response.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        )
    topic, asked = first
    if topic.name != METADATA_TOPIC or asked.partition != 0:
        raise QuorumRequestRefused(_unknown_snapshot_partition(topic.name, asked.partition))
    return core.FetchSnapshotRequest(
        ReplicaKey(message.replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        asked.position,
        message.max_bytes,
        message.cluster_id,
    )


def _unknown_snapshot_partition(topic: str, index: int) -> fetch_snapshot_response.FetchSnapshotResponse:
    module = fetch_snapshot_response
    partition = module.PartitionSnapshot(
        index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unaligned_records=b""
    )
    return module.FetchSnapshotResponse(topics=[module.TopicSnapshot(name=topic, partitions=[partition])])


def _encode_fetch_snapshot(
    request: FetchSnapshotRequest, response: core.FetchSnapshotResponse, api_version: int, listener_name: str
) -> fetch_snapshot_response.FetchSnapshotResponse:
    module = fetch_snapshot_response
    partition = module.PartitionSnapshot(
        index=0,
        error_code=response.error,
        snapshot_id=module.SnapshotId(
            end_offset=response.snapshot_id.offset, epoch=response.snapshot_id.epoch
        ),
        current_leader=module.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
        size=response.size_bytes,
        position=response.position,
        unaligned_records=response.data,
    )
    return module.FetchSnapshotResponse(
        topics=[module.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_node_endpoints(
            module.NodeEndpoint, response, ENDPOINTS_SINCE, api_version, listener_name
        ),
    )


_DECODERS: dict[type, Callable[[Any, int, str | None], core.Request]] = {
    VoteRequest: _decode_vote,
    BeginQuorumEpochRequest: _decode_begin,
    EndQuorumEpochRequest: _decode_end,
    FetchRequest: _decode_fetch,
    FetchSnapshotRequest: _decode_fetch_snapshot,
    AddRaftVoterRequest: decode_add,
    RemoveRaftVoterRequest: decode_remove,
    UpdateRaftVoterRequest: decode_update,
}
_ENCODERS: dict[type, Callable[..., Any]] = {
    VoteRequest: _encode_vote,
    BeginQuorumEpochRequest: _epoch_encoder(
        begin_quorum_epoch_response, begin_quorum_epoch_response.BeginQuorumEpochResponse
    ),
    EndQuorumEpochRequest: _epoch_encoder(
        end_quorum_epoch_response, end_quorum_epoch_response.EndQuorumEpochResponse
    ),
    FetchRequest: _encode_fetch,
    FetchSnapshotRequest: _encode_fetch_snapshot,
    AddRaftVoterRequest: encode_add,
    RemoveRaftVoterRequest: encode_remove,
    UpdateRaftVoterRequest: encode_update,
}
_TOP_LEVEL: dict[type, Any] = {
    VoteRequest: vote_response.VoteResponse,
    BeginQuorumEpochRequest: begin_quorum_epoch_response.BeginQuorumEpochResponse,
    EndQuorumEpochRequest: end_quorum_epoch_response.EndQuorumEpochResponse,
    FetchRequest: fetch_response.FetchResponse,
    FetchSnapshotRequest: fetch_snapshot_response.FetchSnapshotResponse,
}
