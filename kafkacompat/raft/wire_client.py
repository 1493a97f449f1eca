"""The quorum core's requests as wire messages, and the answers of other nodes for the core.

The client's half of the conversion. Pure. Roles and connections are unknown here. Follows KIP-595, KIP-630, KIP-853,
KIP-996. Versions are as in Apache Kafka's raft client: the highest that both sides support; a pre-vote needs Vote
version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch
from kafkacompat.raft import messages as core
from kafkacompat.raft.batches import read_batches
from kafkacompat.raft.voter_set import Endpoints, VoterSet
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages import (
    add_raft_voter_request,
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    fetch_request,
    fetch_snapshot_request,
    remove_raft_voter_request,
    update_raft_voter_request,
    vote_request,
)

PRE_VOTE_SINCE = 2
EARLY_ACKNOWLEDGEMENT_SINCE = 1
"""The AddRaftVoter version that may be answered before the change is committed."""
REPLICA_STATE_SINCE = 15
"""The Fetch version with the replica's identity as we send it."""


class AnswerMalformed(Exception):
    """The answer is not about the metadata partition, or has data that no log can have."""


def encode_request(request: core.Request) -> tuple[Any, int]:
    """(wire message, lowest version that can carry it)."""
    return _ENCODERS[type(request)](request)


def decode_response(
    request: core.Request, message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.Response:
    """`voters` and `kraft_version` are those of the log that the request was made from. Raises AnswerMalformed."""
    return _DECODERS[type(request)](message, listener_name, voters, kraft_version)


def _leader_endpoints(message: Any, leader_id: int, listener_name: str) -> Endpoints:
    return tuple(
        (listener_name, node.host, node.port) for node in message.node_endpoints if node.node_id == leader_id
    )


def _sole_partition(topics: Sequence[Any], names: str, name: object, index: str) -> Any:
    """The metadata partition's part of the answer, which may have nothing else. `names` and `index` are the attribute
    names of topic and partition in this message."""
    if len(topics) == 1 and getattr(topics[0], names) == name:
        partitions = topics[0].partitions
        if len(partitions) == 1 and getattr(partitions[0], index) == 0:
            return partitions[0]
    raise AnswerMalformed("the answer is not about the metadata partition alone")


def _only_partition(message: Any) -> Any:
    return _sole_partition(message.topics, "topic_name", METADATA_TOPIC, "partition_index")


def _current_leader(answer: Any) -> tuple[int, int]:
    """(epoch, id), -1 for values missing in the answer."""
    leader = answer.current_leader
    return (-1, -1) if leader is None else (leader.leader_epoch, leader.leader_id)


# Vote, BeginQuorumEpoch, EndQuorumEpoch.


def _encode_vote(request: core.VoteRequest) -> tuple[vote_request.VoteRequest, int]:
    voter = request.voter
    partition = vote_request.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    message = vote_request.VoteRequest(
        cluster_id=request.cluster_id,
        topics=[vote_request.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )
    if voter is not None:
        message.voter_id, partition.voter_directory_id = voter
    return message, PRE_VOTE_SINCE if request.pre_vote else 0


def _decode_vote(message: Any, listener_name: str, voters: VoterSet, kraft_version: int) -> core.VoteResponse:
    if message.error_code:
        return core.VoteResponse(ErrorCode.NONE, -1, -1, False, (), code_of(message.error_code))
    answer = _only_partition(message)
    return core.VoteResponse(
        code_of(answer.error_code),
        answer.leader_epoch,
        answer.leader_id,
        answer.vote_granted,
        _leader_endpoints(message, answer.leader_id, listener_name),
    )


def _encode_begin(
    request: core.BeginQuorumEpochRequest,
) -> tuple[begin_quorum_epoch_request.BeginQuorumEpochRequest, int]:
    module = begin_quorum_epoch_request
    partition = module.PartitionData(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    message = module.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[module.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            module.LeaderEndpoint(name=name, host=host, port=port)
            for name, host, port in request.leader_endpoints
        ],
    )
    if request.voter is not None:
        message.voter_id, partition.voter_directory_id = request.voter
    return message, 0


def _encode_end(
    request: core.EndQuorumEpochRequest,
) -> tuple[end_quorum_epoch_request.EndQuorumEpochRequest, int]:
    module = end_quorum_epoch_request
    partition = module.PartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[each.id for each in request.preferred_candidates],
        preferred_candidates=[
            module.ReplicaInfo(candidate_id=each.id, candidate_directory_id=each.directory_id)
            for each in request.preferred_candidates
        ],
    )
    message = module.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[module.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            module.LeaderEndpoint(name=name, host=host, port=port)
            for name, host, port in request.leader_endpoints
        ],
    )
    return message, 0


def _decode_epoch(
    message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.QuorumEpochResponse:
    if message.error_code:
        return core.QuorumEpochResponse(ErrorCode.NONE, -1, -1, (), code_of(message.error_code))
    answer = _only_partition(message)
    return core.QuorumEpochResponse(
        code_of(answer.error_code),
        answer.leader_epoch,
        answer.leader_id,
        _leader_endpoints(message, answer.leader_id, listener_name),
    )


# Fetch.


def _encode_fetch(request: core.FetchRequest) -> tuple[fetch_request.FetchRequest, int]:
    partition = fetch_request.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    message = fetch_request.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch_request.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[
            fetch_request.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        ],
    )
    return message, REPLICA_STATE_SINCE


def _decode_fetch(
    message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.FetchResponse:
    if message.error_code:
        return core.FetchResponse(ErrorCode.NONE, -1, -1, top_level_error=code_of(message.error_code))
    answer = _sole_partition(message.responses, "topic_id", METADATA_TOPIC_ID, "partition_index")
    leader_epoch, leader_id = _current_leader(answer)
    response = core.FetchResponse(
        code_of(answer.error_code),
        leader_epoch,
        leader_id,
        _leader_endpoints(message, leader_id, listener_name),
        answer.high_watermark,
        answer.log_start_offset,
    )
    diverging, snapshot = answer.diverging_epoch, answer.snapshot_id
    if diverging is not None and diverging.epoch >= 0:
        if diverging.end_offset < 0:
            raise AnswerMalformed(f"a diverging epoch that ends at {diverging.end_offset}")
        response.diverging = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
    elif snapshot is not None and (snapshot.epoch >= 0 or snapshot.end_offset >= 0):
        if snapshot.epoch < 0 or snapshot.end_offset < 0:
            raise AnswerMalformed(f"a snapshot {snapshot.end_offset}-{snapshot.epoch}")
        response.snapshot_id = OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
    elif answer.records:
        response.records = read_batches(answer.records, voters, kraft_version)
    return response


# FetchSnapshot.


def _encode_fetch_snapshot(
    request: core.FetchSnapshotRequest,
) -> tuple[fetch_snapshot_request.FetchSnapshotRequest, int]:
    module = fetch_snapshot_request
    partition = module.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=module.SnapshotId(end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    message = module.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[module.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )
    return message, 0


def _decode_fetch_snapshot(
    message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.FetchSnapshotResponse:
    if message.error_code:
        return core.FetchSnapshotResponse(ErrorCode.NONE, -1, -1, top_level_error=code_of(message.error_code))
    answer = _sole_partition(message.topics, "name", METADATA_TOPIC, "index")
    leader_epoch, leader_id = _current_leader(answer)
    return core.FetchSnapshotResponse(
        code_of(answer.error_code),
        leader_epoch,
        leader_id,
        _leader_endpoints(message, leader_id, listener_name),
        OffsetAndEpoch(answer.snapshot_id.end_offset, answer.snapshot_id.epoch),
        answer.size,
        answer.position,
        bytes(answer.unaligned_records or b""),
    )


# The voter set.


def _encode_add(request: core.AddRaftVoterRequest) -> tuple[add_raft_voter_request.AddRaftVoterRequest, int]:
    module = add_raft_voter_request
    voter = request.voter
    message = module.AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=[module.Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        ack_when_committed=request.ack_when_committed,
    )
    return message, 0 if request.ack_when_committed else EARLY_ACKNOWLEDGEMENT_SINCE


def _encode_remove(
    request: core.RemoveRaftVoterRequest,
) -> tuple[remove_raft_voter_request.RemoveRaftVoterRequest, int]:
    message = remove_raft_voter_request.RemoveRaftVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id,
    )
    return message, 0


def _decode_change(
    message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.RaftVoterResponse:
    return core.RaftVoterResponse(code_of(message.error_code), message.error_message)


def _encode_update(
    request: core.UpdateRaftVoterRequest,
) -> tuple[update_raft_voter_request.UpdateRaftVoterRequest, int]:
    module = update_raft_voter_request
    voter = request.voter
    message = module.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=[module.Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        kraft_version_feature=module.KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
        ),
    )
    return message, 0


def _decode_update(
    message: Any, listener_name: str, voters: VoterSet, kraft_version: int
) -> core.RaftVoterResponse:
    leader = message.current_leader
    if leader is None:
        return core.RaftVoterResponse(code_of(message.error_code))
    endpoints: Endpoints = ((listener_name, leader.host, leader.port),) if leader.host else ()
    return core.RaftVoterResponse(
        code_of(message.error_code), None, leader.leader_epoch, leader.leader_id, endpoints
    )


_ENCODERS: dict[type, Callable[[Any], tuple[Any, int]]] = {
    core.VoteRequest: _encode_vote,
    core.BeginQuorumEpochRequest: _encode_begin,
    core.EndQuorumEpochRequest: _encode_end,
    core.FetchRequest: _encode_fetch,
    core.FetchSnapshotRequest: _encode_fetch_snapshot,
    core.AddRaftVoterRequest: _encode_add,
    core.RemoveRaftVoterRequest: _encode_remove,
    core.UpdateRaftVoterRequest: _encode_update,
}
_DECODERS: dict[type, Callable[[Any, str, VoterSet, int], core.Response]] = {
    core.VoteRequest: _decode_vote,
    core.BeginQuorumEpochRequest: _decode_epoch,
    core.EndQuorumEpochRequest: _decode_epoch,
    core.FetchRequest: _decode_fetch,
    core.FetchSnapshotRequest: _decode_fetch_snapshot,
    core.AddRaftVoterRequest: _decode_change,
    core.RemoveRaftVoterRequest: _decode_change,
    core.UpdateRaftVoterRequest: _decode_update,
}
