"""DescribeQuorum's answers compared with Apache Kafka 4.3.0's, and with several replicas."""

from __future__ import annotations

import pytest

from kafkacompat.raft._tests.quorum_support import Node
from kafkacompat.raft.describe import describe_quorum
from kafkacompat.raft.quorum_driver import QuorumReport, ReplicaReport, leader_report
from kafkacompat.tasks import at_once
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.describe_quorum_response import DescribeQuorumResponse

METADATA = ("__cluster_metadata", (0,))
REPORT = QuorumReport(
    leader_id=2,
    epoch=7,
    high_watermark=90,
    voters=(
        ReplicaReport(1, b"a" * 16, 88, 1000, 900, (("CONTROLLER", "one", 9093),)),
        ReplicaReport(2, b"b" * 16, 100, 1500, 1500, (("CONTROLLER", "two", 9093), ("SSL", "two", 9094))),
        ReplicaReport(3, b"c" * 16),
    ),
    observers=(ReplicaReport(4, b"d" * 16, 90, 1400, 1400),),
)


def request(*topics: tuple[str, tuple[int, ...]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name=name, partitions=[PartitionData(partition_index=index) for index in partitions]
            )
            for name, partitions in topics
        ]
    )


def test_a_leader_tells_of_voters_observers_and_their_addresses() -> None:
    answer = decode(DescribeQuorumResponse, 2, encode(at_once(describe_quorum(request(METADATA), REPORT)), 2))
    assert (answer.error_code, answer.error_message) == (0, "")
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.error_message) == (0, "")
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 7, 90)
    assert [
        (each.replica_id, each.replica_directory_id, each.log_end_offset, each.last_fetch_timestamp)
        for each in partition.current_voters
    ] == [(1, b"a" * 16, 88, 1000), (2, b"b" * 16, 100, 1500), (3, b"c" * 16, -1, -1)]
    assert [each.last_caught_up_timestamp for each in partition.current_voters] == [900, 1500, -1]
    assert [each.replica_id for each in partition.observers] == [4]
    assert [(node.node_id, [each.port for each in node.listeners]) for node in answer.nodes] == [
        (1, [9093]),
        (2, [9093, 9094]),
        (3, []),
    ]


def test_a_leader_that_has_committed_nothing_tells_of_its_voters_without_a_high_watermark() -> None:
    node = Node()
    node.become_leader()
    report = leader_report(node.core, 1000, node.now_ms)
    (partition,) = at_once(describe_quorum(request(METADATA), report)).topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.high_watermark) == (0, 1, -1)
    assert [(each.replica_id, each.log_end_offset) for each in partition.current_voters] == [
        (1, 3),
        (2, -1),
        (3, -1),
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_old_clients_are_told_what_they_have_fields_for(version: int) -> None:
    answer = at_once(describe_quorum(request(METADATA), REPORT, with_identities=False))
    (topic,) = decode(DescribeQuorumResponse, version, encode(answer, version)).topics
    assert [each.log_end_offset for each in topic.partitions[0].current_voters] == [88, 100, -1]


def test_a_voter_that_does_not_lead_says_so_at_the_partition() -> None:
    answer = at_once(describe_quorum(request(METADATA), None))
    assert answer.error_code == 0
    assert [each.error_code for each in answer.topics[0].partitions] == [6]
    assert answer.nodes == []


@pytest.mark.parametrize(
    "topics",
    [
        [("t", (0, 5))],
        [METADATA, ("t", (0,))],
        [METADATA, METADATA],
        [("__cluster_metadata", (1,))],
        [("__cluster_metadata", (0, 1))],
        [("__cluster_metadata", (0, 0))],
        [("__cluster_metadata", ())],
        [],
    ],
    ids=str,
)
def test_anything_but_the_one_partition_is_unknown_entry_by_entry(
    topics: list[tuple[str, tuple[int, ...]]],
) -> None:
    for report in (REPORT, None):
        answer = at_once(describe_quorum(request(*topics), report))
        assert answer.error_code == 0
        assert [
            (topic.topic_name, tuple(each.partition_index for each in topic.partitions))
            for topic in answer.topics
        ] == topics
        found = [each for topic in answer.topics for each in topic.partitions]
        assert all(each.error_code == 3 and each.leader_id == 0 for each in found)
