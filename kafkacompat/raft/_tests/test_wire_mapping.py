"""The quorum's messages on the wire: structure, error levels and versions, as server and as client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch
from kafkacompat.raft import messages as core
from kafkacompat.raft import wire_client, wire_server
from kafkacompat.raft._tests.driver_support import (
    LISTENER,
    RESPONSES,
    address,
    directory_id,
    static_voter,
    voter,
)
from kafkacompat.raft.batches import BrokenBatch
from kafkacompat.raft.control_records import kraft_version, leader_change, voters
from kafkacompat.raft.snapshot import pack_values
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet
from kafkacompat.records.control import build_control_batch
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import (
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    fetch_request,
    fetch_response,
    fetch_snapshot_request,
    fetch_snapshot_response,
    vote_request,
)

KEY = ReplicaKey(2, directory_id(2))
NONE = ErrorCode.NONE
REQUESTS: list[core.Request] = [
    core.VoteRequest(ReplicaKey(1, directory_id(1)), KEY, 7, 6, 100, True, "cluster"),
    core.BeginQuorumEpochRequest(KEY, 1, 7, address(1), "cluster"),
    core.EndQuorumEpochRequest(1, 7, (KEY, ReplicaKey(3, directory_id(3))), address(1), "cluster"),
    core.FetchRequest(KEY, 7, 100, 6, 500, 1000, -1, "cluster"),
    core.FetchSnapshotRequest(KEY, 7, OffsetAndEpoch(90, 5), 10, 1000, "cluster"),
    core.UpdateRaftVoterRequest(7, voter(2), "cluster"),
    core.AddRaftVoterRequest(voter(2), 500, False, "cluster"),
    core.RemoveRaftVoterRequest(KEY, "cluster"),
]


def carried(message: Any, version: int) -> Any:
    return decode(type(message), version, bytes(encode(message, version)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_comes_out_as_it_went_in(request_: core.Request) -> None:
    message, min_version = wire_client.encode_request(request_)
    for version in range(max(min_version, message.MIN_VERSION), message.MAX_VERSION + 1):
        received = wire_server.decode_request(carried(message, version), version, "cluster")
        if version == message.MAX_VERSION:
            assert received == request_
        else:
            assert type(received) is type(request_)


RESPONSES_OF: list[tuple[core.Request, core.Response]] = [
    (REQUESTS[0], core.VoteResponse(NONE, 7, 1, True, address(1))),
    (REQUESTS[1], core.QuorumEpochResponse(ErrorCode.INVALID_VOTER_KEY, 7, 1, address(1))),
    (REQUESTS[2], core.QuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 8, 3, address(3))),
    (REQUESTS[3], core.FetchResponse(NONE, 7, 1, address(1), 80, 3)),
    (REQUESTS[3], core.FetchResponse(NONE, 7, 1, address(1), 80, 3, diverging=OffsetAndEpoch(70, 5))),
    (REQUESTS[3], core.FetchResponse(NONE, 7, 1, address(1), 80, 3, snapshot_id=OffsetAndEpoch(70, 5))),
    (REQUESTS[3], core.FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 9, -1)),
    (
        REQUESTS[4],
        core.FetchSnapshotResponse(NONE, 7, 1, address(1), OffsetAndEpoch(90, 5), 30, 10, b"twenty bytes"),
    ),
    (REQUESTS[5], core.RaftVoterResponse(NONE, None, 7, 1, address(1))),
]


@pytest.mark.parametrize(("asked", "response"), RESPONSES_OF)
def test_an_answer_comes_out_as_it_went_in(asked: core.Request, response: core.Response) -> None:
    message, min_version = wire_client.encode_request(asked)
    for version in range(max(min_version, message.MIN_VERSION), message.MAX_VERSION + 1):
        answer = wire_server.encode_response(message, response, version, LISTENER)
        assert type(answer) is RESPONSES[type(message).__name__]
        received = wire_client.decode_response(asked, carried(answer, version), LISTENER, VoterSet([]), 1)
        if version == message.MAX_VERSION:
            assert received == response
        assert received.leader_id == response.leader_id
        assert received.epoch == response.epoch


def test_a_fetch_too_old_for_raft_is_answered_without_what_it_cannot_hold() -> None:
    message, _ = wire_client.encode_request(REQUESTS[3])
    for response in (each for asked, each in RESPONSES_OF if asked is REQUESTS[3]):
        for version in range(4, 12):
            (topic,) = carried(
                wire_server.encode_response(message, response, version, LISTENER), version
            ).responses
            assert topic.partitions[0].error_code == response.error  # type: ignore[union-attr]  # a fetch's error


def test_the_leaders_address_is_only_told_of_the_asked_listener() -> None:
    message, _ = wire_client.encode_request(REQUESTS[0])
    response = core.VoteResponse(NONE, 7, 1, True, (("OTHER", "127.0.0.1", 1),))
    assert wire_server.encode_response(message, response, 2, LISTENER).node_endpoints == []
    fetch, _ = wire_client.encode_request(REQUESTS[3])
    answer = core.FetchResponse(NONE, 7, 1, address(1))
    assert wire_server.encode_response(fetch, answer, 16, LISTENER).node_endpoints == []
    assert wire_server.encode_response(fetch, answer, 17, LISTENER).node_endpoints[0].port == 9001


@pytest.mark.parametrize("request_", REQUESTS[:5], ids=lambda request: type(request).__name__)
def test_another_clusters_request_is_refused_as_a_whole(request_: core.Request) -> None:
    message, _ = wire_client.encode_request(replace(request_, cluster_id="other"))
    with pytest.raises(wire_server.QuorumRequestRefused) as refused:
        wire_server.decode_request(message, message.MAX_VERSION, "cluster")
    answer = refused.value.response
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    carried(answer, message.MAX_VERSION)
    received = wire_client.decode_response(request_, answer, LISTENER, VoterSet([]), 1)
    assert received.top_level_error is ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[union-attr]


@pytest.mark.parametrize("request_", REQUESTS[:5], ids=lambda request: type(request).__name__)
def test_a_request_without_a_cluster_id_is_taken(request_: core.Request) -> None:
    message, _ = wire_client.encode_request(replace(request_, cluster_id=None))
    assert wire_server.decode_request(message, message.MAX_VERSION, "cluster").cluster_id is None


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (vote_request.VoteRequest(topics=[]), 2),
        (begin_quorum_epoch_request.BeginQuorumEpochRequest(), 1),
        (end_quorum_epoch_request.EndQuorumEpochRequest(), 1),
        (fetch_request.FetchRequest(), 18),
        (
            vote_request.VoteRequest(
                topics=[
                    vote_request.TopicData(
                        topic_name=METADATA_TOPIC, partitions=[vote_request.PartitionData(partition_index=1)]
                    )
                ]
            ),
            2,
        ),
        (
            vote_request.VoteRequest(
                topics=[vote_request.TopicData(topic_name="words", partitions=[vote_request.PartitionData()])]
            ),
            2,
        ),
        (
            fetch_request.FetchRequest(
                topics=[
                    fetch_request.FetchTopic(
                        topic_id=METADATA_TOPIC_ID,
                        partitions=[
                            fetch_request.FetchPartition(),
                            fetch_request.FetchPartition(partition=1),
                        ],
                    )
                ]
            ),
            18,
        ),
        (
            fetch_request.FetchRequest(
                topics=[
                    fetch_request.FetchTopic(
                        topic=METADATA_TOPIC, partitions=[fetch_request.FetchPartition()]
                    )
                ]
            ),
            13,
        ),
    ],
)
def test_a_request_for_anything_but_the_metadata_partition_is_refused_as_a_whole(
    message: Any, version: int
) -> None:
    with pytest.raises(wire_server.QuorumRequestRefused) as refused:
        wire_server.decode_request(message, version, "cluster")
    assert refused.value.response.error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_below_topic_ids_names_the_topic() -> None:
    partition = fetch_request.FetchPartition(fetch_offset=5, last_fetched_epoch=1, current_leader_epoch=2)
    message = fetch_request.FetchRequest(
        replica_id=4, topics=[fetch_request.FetchTopic(topic=METADATA_TOPIC, partitions=[partition])]
    )
    request = wire_server.decode_request(carried(message, 12), 12, "cluster")
    assert isinstance(request, core.FetchRequest)
    assert (request.replica, request.fetch_offset) == (ReplicaKey(4), 5)
    assert request.high_watermark == core.NO_HIGH_WATERMARK_HINT


def test_a_snapshot_of_another_topic_is_unknown_and_its_error_can_be_sent() -> None:
    """Kafka 4.3 cannot write such an answer, because it leaves the bytes null."""
    module = fetch_snapshot_request
    message = module.FetchSnapshotRequest(
        topics=[module.TopicSnapshot(name="words", partitions=[module.PartitionSnapshot(partition=3)])]
    )
    with pytest.raises(wire_server.QuorumRequestRefused) as refused:
        wire_server.decode_request(message, 1, "cluster")
    answer = carried(refused.value.response, 1)
    partition = answer.topics[0].partitions[0]
    assert (partition.index, partition.error_code) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(wire_server.QuorumRequestRefused):
        wire_server.decode_request(module.FetchSnapshotRequest(), 1, "cluster")


def test_a_pre_vote_needs_version_2() -> None:
    assert wire_client.encode_request(REQUESTS[0])[1] == 2
    vote = replace(REQUESTS[0], pre_vote=False)
    message, min_version = wire_client.encode_request(vote)
    assert min_version == 0
    received = wire_server.decode_request(carried(message, 0), 0, "cluster")
    assert isinstance(received, core.VoteRequest)
    assert (received.voter, received.candidate) == (None, ReplicaKey(1))


def fetched(records: bytes, known: VoterSet, version: int = 0) -> core.FetchResponse:
    partition = fetch_response.PartitionData(
        current_leader=fetch_response.LeaderIdAndEpoch(leader_id=1, leader_epoch=7), records=records
    )
    topic = fetch_response.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    answer = carried(fetch_response.FetchResponse(responses=[topic]), 18)
    response = wire_client.decode_response(REQUESTS[3], answer, LISTENER, known, version)
    assert isinstance(response, core.FetchResponse)
    return response


def test_fetched_batches_say_which_voters_they_name() -> None:
    set_of_three = VoterSet([voter(1), voter(2), voter(3)])
    first = build_control_batch(
        [leader_change(1, [1], [1]), kraft_version(1), voters(set_of_three.voters)],
        base_offset=100,
        leader_epoch=7,
        timestamp_ms=0,
    )
    second = b"".join(pack_values([b"a", b"b"], 103, 7, 0))
    third = build_control_batch(
        [voters(set_of_three.without(KEY).voters)], base_offset=105, leader_epoch=7, timestamp_ms=0
    )
    data = bytes(first) + second + bytes(third)
    response = fetched(data + data[:40], VoterSet([static_voter(1)]))
    assert [(each.base_offset, each.end_offset, each.epoch) for each in response.records] == [
        (100, 103, 7),
        (103, 105, 7),
        (105, 106, 7),
    ]
    assert [each.voters for each in response.records] == [set_of_three, None, set_of_three.without(KEY)]
    assert [each.kraft_version for each in response.records][::2] == [1, 1]
    assert b"".join(bytes(each.payload) for each in response.records) == data


def test_a_damaged_batch_ends_what_is_taken() -> None:
    sound = b"".join(pack_values([b"a"], 100, 7, 0))
    damaged = bytearray(b"".join(pack_values([b"b"], 101, 7, 0)))
    damaged[-1] ^= 1
    assert [each.end_offset for each in fetched(sound + bytes(damaged), VoterSet([])).records] == [101]
    damaged[16] = 9
    with pytest.raises(BrokenBatch):
        fetched(sound + bytes(damaged), VoterSet([]))


def test_an_answer_that_begins_with_a_damaged_batch_has_failed() -> None:
    """As an answer without records it would be asked for again at once, and for ever."""
    damaged = bytearray(b"".join(pack_values([b"a"], 100, 7, 0)))
    damaged[-1] ^= 1
    with pytest.raises(BrokenBatch):
        fetched(bytes(damaged), VoterSet([]))


@pytest.mark.parametrize("index", range(5))
def test_an_answer_about_something_else_is_malformed(index: int) -> None:
    message, _ = wire_client.encode_request(REQUESTS[index])
    answer = RESPONSES[type(message).__name__]()
    with pytest.raises(wire_client.AnswerMalformed):
        wire_client.decode_response(REQUESTS[index], answer, LISTENER, VoterSet([]), 1)


def test_a_snapshot_error_without_topics_is_the_whole_answers() -> None:
    """Kafka 4.3 sends this for any error of a snapshot's partition."""
    answer = fetch_snapshot_response.FetchSnapshotResponse(error_code=-1)
    response = wire_client.decode_response(REQUESTS[4], answer, LISTENER, VoterSet([]), 1)
    assert response.top_level_error is ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[union-attr]
