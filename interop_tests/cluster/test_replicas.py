"""Guarantees of replication: enough replicas for acks=all, no stale leader, preferred leaders, unique producer ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cluster import views
from interop_tests.cluster.asking import (
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    REQUEST_TIMED_OUT,
    values,
    write,
)
from interop_tests.cluster.clusters import BOTH, BROKER, Cluster
from interop_tests.cluster.conftest import MakeCluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.wire import Connection

Unique = Callable[[str], str]
ELECT = "LeaderElectionCommand"
PREFERRED_LEADER_NOT_AVAILABLE = "PreferredLeaderNotAvailableException"


def followers_first(cluster: Cluster) -> tuple[int, int, int]:
    """The node ids with the active controller last, so that a test can kill the others without an election."""
    active = cluster.active_controller()
    one, two = (node_id for node_id in cluster.nodes if node_id != active)
    return one, two, active


def isr_is(cluster: Cluster, topic: str, *node_ids: int, timeout_s: float = 40.0) -> None:
    """Wait until every serving broker reports this ISR of partition 0, including its leader."""

    def is_told(node: ClusterNode) -> bool:
        found = views.ask([node], lambda connection: views.partitions(connection, topic))
        return bool(found) and set(found[0].isr) == set(node_ids)

    cluster.wait(
        lambda: all(is_told(node) for node in cluster.brokers if node.serves),
        f"the ISR of {topic} is {node_ids}",
        timeout_s,
    )


def is_led_by(cluster: Cluster, topic: str, node_id: int) -> None:
    """Wait until node_id leads partition 0. The response to an election arrives before the brokers know its result."""
    cluster.wait(lambda: cluster.leader(topic) == node_id, f"node {node_id} leads {topic}")


def test_too_few_replicas_in_sync_refuse_acks_all(cluster: Cluster, unique: Unique) -> None:
    """Also KIP-966's strict rule: consumers get records that acks=1 wrote meanwhile only when the ISR is large enough
    again."""
    follower, other, leader = followers_first(cluster)
    topic = cluster.create_topic(unique("min-isr"), assignment=[[leader, follower]])
    assert write(cluster, topic, b"first")["ErrorCode"] == 0
    assert other not in (leader, follower)
    cluster.nodes[follower].kill()
    # Until the ISR shrinks, the record waits for the follower. It is in the log although it is not acknowledged.
    waited = write(cluster, topic, b"too early", timeout_ms=500)["ErrorCode"]
    assert waited in (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    isr_is(cluster, topic, leader)
    assert write(cluster, topic, b"refused")["ErrorCode"] == NOT_ENOUGH_REPLICAS
    assert write(cluster, topic, b"alone", acks=1)["ErrorCode"] == 0
    assert values(cluster, topic) == [b"first"]
    cluster.nodes[follower].start()
    isr_is(cluster, topic, leader, follower)
    assert write(cluster, topic, b"again")["ErrorCode"] == 0
    early = [b"too early"] if waited != NOT_ENOUGH_REPLICAS else []
    assert values(cluster, topic) == [b"first", *early, b"alone", b"again"]


def test_a_stale_replica_leads_only_where_it_is_allowed(
    cluster: Cluster, tools: KafkaTools, unique: Unique
) -> None:
    """The last in-sync replica dies, and the replica that fell behind comes back first. It does not become leader by
    itself: by the rule of the last known leader in Kafka 4.3, the other replica has to come back. It does become
    leader if the topic allows it or an operator asks for it."""
    stale, last, _ = followers_first(cluster)
    allowed = {"unclean.leader.election.enable": "true"}
    topics = {
        name: cluster.create_topic(
            unique(name),
            assignment=[[last, stale]],
            configs={"min.insync.replicas": "1", **(allowed if name == "allowed" else {})},
        )
        for name in ("refused", "asked", "allowed")
    }
    for topic in topics.values():
        assert write(cluster, topic, b"both")["ErrorCode"] == 0
    cluster.nodes[stale].kill()
    for topic in topics.values():
        isr_is(cluster, topic, last)
        assert write(cluster, topic, b"last alone")["ErrorCode"] == 0
    cluster.nodes[last].kill()
    cluster.nodes[stale].start()
    cluster.wait_for_brokers(stale)
    cluster.wait_until_gone(last)
    for name in ("refused", "asked"):
        found = cluster.partition(topics[name])
        assert found is not None
        assert found.leader == -1, (name, found)

    def elect(election: str, topic: str) -> str:
        return tools.run(
            ELECT,
            *("--bootstrap-server", cluster.nodes[stale].bootstrap, "--election-type", election),
            *("--topic", topic, "--partition", "0"),
            status=None,
        ).out

    assert PREFERRED_LEADER_NOT_AVAILABLE in elect("preferred", topics["refused"])
    said = elect("unclean", topics["asked"])
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topics['asked']}-0" in said
    for name in ("asked", "allowed"):
        # The broker applies the topic's setting at once, and also an operator's request.
        is_led_by(cluster, topics[name], stale)
        assert values(cluster, topics[name]) == [b"both"]
        assert write(cluster, topics[name], b"instead")["ErrorCode"] == 0
    found = cluster.partition(topics["refused"])
    assert found is not None
    assert found.leader == -1
    cluster.nodes[last].start()
    cluster.wait_until_whole()
    is_led_by(cluster, topics["refused"], last)
    assert values(cluster, topics["refused"]) == [b"both", b"last alone"]
    for name in ("asked", "allowed"):
        # The former leader has truncated its log to the common part.
        assert values(cluster, topics[name]) == [b"both", b"instead"]
        said = elect("preferred", topics[name])
        assert f"Successfully completed leader election (PREFERRED) for partitions {topics[name]}-0" in said
        is_led_by(cluster, topics[name], last)
        assert values(cluster, topics[name]) == [b"both", b"instead"]


def described(tools: KafkaTools, cluster: Cluster, topic: str, *options: str) -> list[int]:
    """The numbers of the topic's partitions that kafka-topics --describe shows with these filters."""
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe", *options]
    out = tools.run("TopicCommand", *arguments).out
    return [int(number) for number in re.findall(rf"Topic: {topic}\s+Partition: (\d+)", out)]


def test_topics_that_miss_replicas_are_shown_and_leaders_go_back(
    cluster: Cluster, tools: KafkaTools, unique: Unique, tmp_path: Path
) -> None:
    one, two, active = followers_first(cluster)
    any_one = {"min.insync.replicas": "1"}
    topic = cluster.create_topic(
        unique("seen"), assignment=[[one, two], [two, active], [active, two], [one, active]], configs=any_one
    )
    single = cluster.create_topic(unique("single"), assignment=[[one]])
    filters = ("under-replicated", "at-min-isr", "under-min-isr", "unavailable")

    def shown(name: str) -> dict[str, list[int]]:
        return {each: described(tools, cluster, name, f"--{each}-partitions") for each in filters}

    assert shown(topic) == {each: [] for each in filters}
    assert shown(single) == {**{each: [] for each in filters}, "under-min-isr": [0]}
    cluster.nodes[one].kill()
    cluster.wait_until_gone(one)
    assert cluster.leader(topic, 0) == two
    assert shown(topic) == {
        "under-replicated": [0, 3],
        "at-min-isr": [0, 3],
        "under-min-isr": [],
        "unavailable": [],
    }
    shown_single = shown(single)
    assert shown_single["unavailable"] == shown_single["under-min-isr"] == [0]
    cluster.nodes[one].start()
    cluster.wait_until_whole()
    assert described(tools, cluster, topic, "--under-replicated-partitions") == []
    assert cluster.leader(topic, 0) != one
    plan = tmp_path / "elect.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    arguments = ["--bootstrap-server", cluster.bootstrap, "--election-type", "preferred"]
    said = tools.run(ELECT, *arguments, "--path-to-json-file", str(plan)).out
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said
    is_led_by(cluster, topic, one)
    said = tools.run(ELECT, *arguments, "--all-topic-partitions").out
    assert f"{topic}-0" not in said


def test_producer_ids_are_given_once(cluster: Cluster) -> None:
    """Each node has blocks of 1,000 ids from the controller. A block is not used again after a restart or another
    election."""
    given: list[int] = []

    def take(node_id: int, count: int) -> set[int]:
        """The blocks of the ids."""
        body = {"TransactionalId": None, "TransactionTimeoutMs": 60000}
        with Connection(cluster.nodes[node_id].bootstrap) as connection:
            for _ in range(count):

                def ask() -> int:
                    reply = connection.call("InitProducerId", 4, body)
                    # A node without a block answers with a retriable error.
                    assert reply["ErrorCode"] in (0, 14, 15), reply
                    return reply["ProducerId"] + 1 if reply["ErrorCode"] == 0 else 0

                given.append(cluster.wait(ask, "a producer id") - 1)
        return {number // 1000 for number in given[-count:]}

    # Five ids may be from two blocks, because some ids of the first block were used before.
    blocks = [take(node_id, 5) for node_id in cluster.nodes]
    assert sum(map(len, blocks)) == len(set().union(*blocks)), given
    first = next(iter(cluster.nodes))
    take(first, 1200)
    active = cluster.active_controller()
    cluster.nodes[active].kill()
    for node_id in set(cluster.nodes) - {active}:
        take(node_id, 1100)
    cluster.mend()
    take(active, 5)
    assert len(set(given)) == len(given)
    assert min(given) >= 0


@pytest.mark.parametrize("serving", [1, 2, 3])
def test_every_node_tells_the_same(cluster: Cluster, serving: int, unique: Unique) -> None:
    """A topic that is created through one node is known to all. Its replicas are distributed over all three racks."""
    name = unique("same")
    body = {
        "Topics": [
            {"Name": name, "NumPartitions": 6, "ReplicationFactor": -1, "Assignments": [], "Configs": []}
        ],
        "timeoutMs": 15000,
    }
    with Connection(cluster.nodes[serving].bootstrap) as connection:
        assert connection.call("CreateTopics", 7, body)["Topics"][0]["ErrorCode"] == 0
    seen = [
        cluster.wait(
            lambda node=node: (
                (found := views.ask([node], lambda connection: views.partitions(connection, name)))
                and all(each.leader > 0 and len(each.isr) == 3 for each in found.values())
                and found
            ),
            f"node {node.node_id} knows {name}",
        )
        for node in cluster.brokers
    ]
    assert seen[0] == seen[1] == seen[2]
    leaders = [each.leader for each in seen[0].values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3], leaders
    assert views.ask(cluster.brokers, views.brokers) == (1, 2, 3)


def test_a_follower_that_hangs_leaves_the_isr_before_its_session_ends(make_cluster: MakeCluster) -> None:
    """Its leader notices that it lags, long before the controller misses its heartbeats. Afterwards it joins again."""
    cluster = make_cluster(
        nodes=2,
        roles=[BOTH, BROKER],
        settings=ONE_REPLICA | {"replica.lag.time.max.ms": "1500", "broker.session.timeout.ms": "60000"},
    )
    leader, follower = 1, 2
    topic = cluster.create_topic("hangs", assignment=[[leader, follower]] * 2)
    assert write(cluster, topic, b"both")["ErrorCode"] == 0
    cluster.nodes[follower].pause()
    assert write(cluster, topic, b"leader", acks=1)["ErrorCode"] == 0

    def is_alone() -> bool:
        found = cluster.ask(lambda connection: views.partitions(connection, topic))
        return found is not None and found[0].isr == (leader,)

    cluster.wait(is_alone, "the follower has left the ISR")
    # It has all that there is of the other partition, although it does not ask.
    idle = cluster.partition(topic, 1)
    assert idle is not None
    assert set(idle.isr) == {leader, follower}
    assert cluster.ask(views.brokers) == (leader, follower)
    assert write(cluster, topic, b"alone")["ErrorCode"] == 0
    cluster.nodes[follower].resume()
    isr_is(cluster, topic, leader, follower)
    assert write(cluster, topic, b"again")["ErrorCode"] == 0
    assert values(cluster, topic) == [b"both", b"leader", b"alone", b"again"]
