"""Kafka Streams with exactly_once_v2 on three nodes: word count while instances, coordinators and leaders are killed
with -9."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.chance import seeded_chance
from interop_tests.streams.application import (
    Lines,
    Outputs,
    WordCount,
    assert_exact,
    assert_internal_topics,
    wait_for_counts,
)

KILLS = 20 if os.environ.get("KAFKACOMPAT_SOAK") else 1
"""The number of kills of each kind of victim."""
LINES = 60
"""Lines before and after each kill."""
GROUP = 0


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
