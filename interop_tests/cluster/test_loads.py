"""A partition of `__consumer_offsets` is damaged on the disks of its replicas: an index on all of them, or records on one.
Its group is served by whoever becomes the leader, or by a replica that has it whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import APACHE
from interop_tests.harness.damage import change_byte
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

MakeCluster = Callable[..., Cluster]
OFFSETS, GROUP, TOPIC = "__consumer_offsets", "g", "t"
PARTITIONS, ROUNDS = 60, 12
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.enable": "false",
    # Otherwise a leader could move back while the test asks who leads.
    "auto.leader.rebalance.enable": "false",
}
PREFERRED = 0
SERVED_WITHIN_S = 30.0


@pytest.fixture
def filled(make_cluster: MakeCluster) -> Cluster:
    """A group has committed so much metadata that the only partition of its topic has closed segments."""
    cluster = make_cluster(settings=SETTINGS)
    cluster.create_topic(TOPIC, PARTITIONS)
    # This creates the topic of offsets.
    cluster.ask(lambda each: each.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]}))
    for offset in range(ROUNDS):
        cluster.wait(lambda offset=offset: commit(cluster, offset), "the offsets are committed")  # type: ignore[misc]
    cluster.wait_until_replicated()
    return cluster


def commit(cluster: Cluster, offset: int) -> bool:
    partitions = [
        {
            "PartitionIndex": index,
            "CommittedOffset": offset,
            "CommittedLeaderEpoch": -1,
            "CommittedMetadata": "m" * 4000,
        }
        for index in range(PARTITIONS)
    ]
    body = {
        "GroupId": GROUP,
        "GenerationIdOrMemberEpoch": -1,
        "MemberId": "",
        "GroupInstanceId": None,
        "Topics": [{"Name": TOPIC, "Partitions": partitions}],
    }
    with Connection(cluster.nodes[cluster.leader(OFFSETS)].bootstrap) as connection:
        answer = connection.call("OffsetCommit", 8, body)
    return {each["ErrorCode"] for each in answer["Topics"][0]["Partitions"]} == {0}


def is_served(cluster: Cluster) -> bool:
    """Whether the leader tells the group's last offsets."""
    try:
        with Connection(cluster.nodes[cluster.leader(OFFSETS)].bootstrap) as connection:
            answer = connection.call(
                "OffsetFetch", 7, {"GroupId": GROUP, "Topics": None, "RequireStable": True}
            )
    except OSError:
        return False  # that leader is gone, and no other is known yet
    if answer["ErrorCode"]:
        assert answer["ErrorCode"] in (14, 15, 16), answer["ErrorCode"]
        return False
    offsets = [each["CommittedOffset"] for each in answer["Topics"][0]["Partitions"]]
    assert offsets == [ROUNDS - 1] * PARTITIONS
    return True


def first_segment(node: ClusterNode) -> Path:
    segments = sorted((node.log_dirs[0] / f"{OFFSETS}-0").glob("*.log"))
    assert len(segments) > 2
    return segments[0]


def test_a_damaged_index_delays_a_new_coordinator_only(filled: Cluster, kind: str) -> None:
    cluster = filled
    for node in cluster.nodes.values():
        assert node.stop() in (0, 143)
        first_segment(node).with_suffix(".index").write_bytes(b"\xff" * 11)
        node.start()
        cluster.mend()
    led = set()
    for _ in cluster.nodes:
        leader = cluster.nodes[cluster.leader(OFFSETS)]
        led.add(leader.node_id)
        assert leader.stop() in (0, 143)
        wait_until(lambda: is_served(cluster), "another node serves the group", SERVED_WITHIN_S)
        leader.start()
        cluster.mend()
    assert len(led) > 1
    if kind != APACHE:
        assert any("Found a corrupted index file" in node.log_text() for node in cluster.brokers)


def test_a_coordinator_with_damaged_records_gives_way_to_a_whole_replica(filled: Cluster, kind: str) -> None:
    if kind == APACHE:
        pytest.skip("Apache Kafka serves the group no more until the leader changes")
    cluster = filled
    partition = cluster.partition(OFFSETS)
    assert partition is not None
    victim = cluster.nodes[partition.replicas[0]]
    assert victim.stop() == 0
    change_byte(first_segment(victim), 500_000)
    victim.start()
    cluster.mend()
    election = {
        "ElectionType": PREFERRED,
        "TopicPartitions": [{"Topic": OFFSETS, "Partitions": [0]}],
        "TimeoutMs": 10_000,
    }
    answer = cluster.ask(lambda connection: connection.call("ElectLeaders", 2, election))
    assert answer is not None
    assert answer["ErrorCode"] == 0
    # The victim leads now, or has led.
    cluster.wait(lambda: "another replica takes over" in victim.log_text(), "the victim has tried to load")
    wait_until(lambda: is_served(cluster), "a whole replica serves the group", SERVED_WITHIN_S)
    found = cluster.partition(OFFSETS)
    assert found is not None
    assert found.leader != victim.node_id
    assert found.offline == (victim.node_id,)
    assert victim.is_running
    assert commit(cluster, ROUNDS - 1)
