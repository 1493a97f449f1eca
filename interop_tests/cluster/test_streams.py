"""Kafka Streams with exactly_once_v2 on three nodes: word count while instances, coordinators and leaders are killed
with -9."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import MakeCluster
from interop_tests.cluster.moving import elect, reassign, serving_leader
from interop_tests.harness.chance import seeded_chance
from interop_tests.streams.application import (
    Lines,
    Outputs,
    WordCount,
    assert_exact,
    assert_internal_topics,
    wait_for_counts,
)
from interop_tests.streams.instances import BROKER_SETTINGS

KILLS = 20 if os.environ.get("KAFKACOMPAT_SOAK") else 1
"""The number of kills of each kind of victim."""
LINES = 60
"""Lines before and after each kill."""
GROUP = 0
OFFSETS_TOPIC = "__consumer_offsets"


def group_coordinator(cluster: Cluster, group: str) -> int:
    def question(connection: Any) -> int:
        reply = connection.call("FindCoordinator", 4, {"KeyType": GROUP, "CoordinatorKeys": [group]})
        (found,) = reply["Coordinators"]
        return found["NodeId"] if found["ErrorCode"] == 0 else 0

    return cluster.wait(lambda: cluster.ask(question), f"{group} has a coordinator")


def test_instances_and_nodes_are_killed(cluster: Cluster, unique: Any, tmp_path: Path) -> None:
    """Two instances, each with standby replicas of the other's stores: each word is counted once."""
    chance = seeded_chance()
    application = WordCount(tmp_path, cluster.bootstrap, unique("count"), 3)
    lines = Lines(application, chance)
    outputs = Outputs(cluster.bootstrap, application.counts)
    leader = {
        "any node": lambda: chance.choice([1, 2, 3]),
        "group coordinator": lambda: group_coordinator(cluster, application.name),
        "leader of counts": lambda: cluster.leader(application.counts, chance.randrange(2)),
    }
    victims = [*leader, "instance", "both instances"] * KILLS
    chance.shuffle(victims)
    try:
        for number in (0, 1):
            application.start(number)
        for victim in victims:
            seen = outputs.poll()
            lines.write(LINES)
            wait_for_counts(application, outputs, seen + chance.randrange(1, LINES * 3))
            print(victim)
            lines.write(LINES)
            if victim in leader:
                node = cluster.nodes[leader[victim]()]
                node.kill()
                threading.Event().wait(chance.uniform(0, 1.0))
                node.start()
                cluster.wait_until_whole()
            else:
                numbers = [0, 1] if victim == "both instances" else [chance.randrange(2)]
                for number in numbers:
                    application.kill(number)
                for number in numbers:
                    application.start(number)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        assert_exact(application, lines)
        assert_internal_topics(application)
        for number in (0, 1):
            assert application.stop(number) == 0
    finally:
        outputs.close()
        application.close()


def test_the_coordinator_of_a_streams_group_is_replaced(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """KIP-1071: the coordinator is killed, paused beyond its session, and moved to other nodes, once while an instance
    dies. Each word is counted once."""
    settings = {"offsets.topic.num.partitions": "1", "broker.session.timeout.ms": "4000"}
    settings |= {"broker.heartbeat.interval.ms": "500", "auto.leader.rebalance.enable": "false"}
    cluster = make_cluster(settings=BROKER_SETTINGS | settings)
    application = WordCount(tmp_path, cluster.bootstrap, "count", 3, "streams")
    lines = Lines(application, seeded_chance())
    outputs = Outputs(cluster.bootstrap, application.counts)

    def home() -> int:
        found = cluster.wait(lambda: serving_leader(cluster, OFFSETS_TOPIC), "there is a coordinator")
        return found[0]

    def others(node: int) -> list[int]:
        return [each for each in cluster.nodes if each != node]

    def goes_on() -> None:
        lines.write(LINES)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())

    try:
        for number in (0, 1):
            application.start(number)
        goes_on()
        for change in ("killed", "paused", "elected", "reassigned", "killed with an instance"):
            print(change)
            before = home()
            node = cluster.nodes[before]
            lines.write(LINES)
            if change == "elected":
                elect(cluster, OFFSETS_TOPIC, others(before)[0])
            elif change == "reassigned":
                reassign(cluster, OFFSETS_TOPIC, others(before))
            elif change == "paused":
                node.pause()
                cluster.wait(lambda before=before: home() != before, "another node is the coordinator")
                # It still takes itself for the coordinator.
                node.resume()
            else:
                node.kill()
            if change == "killed with an instance":
                application.kill(0)
            goes_on()
            assert home() != before
            cluster.mend()
            if change == "reassigned":
                reassign(cluster, OFFSETS_TOPIC, [*others(before), before])
        application.start(0)
        goes_on()
        assert_exact(application, lines)
        assert_internal_topics(application)
        for number in (0, 1):
            assert application.stop(number) == 0
    finally:
        outputs.close()
        application.close()
