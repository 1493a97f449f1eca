"""Nodes die, stop, hang and come back while clients continue: no acknowledged record is lost, and none is duplicated.

The tests measure and print how long each partition made no progress. They require only that kafkacompat does not wait
for a session to expire, as Apache Kafka has to. How much sooner it continues also depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.harness.waiting import wait_until

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
PARTITIONS = 3
SESSION_TIMEOUT_S = 9.0
"""Kafka's default."""


class Scenario:
    """A topic of the shared cluster with clients at work on it."""

    def __init__(self, cluster: Cluster, at_work: AtWork, topic: str, measure: Measure) -> None:
        self.cluster = cluster
        self.topic = cluster.create_topic(topic, PARTITIONS)
        self.works, self.follower = at_work(cluster, self.topic, PARTITIONS)
        self._measure = measure

    def goes_on(self, timeout_s: float = 60.0) -> float:
        """Wait until every producer has made progress on every partition. Returns the longest gap of all producers."""
        return max(work.wait_for_progress(timeout_s) for work in self.works)

    def ends_well(self, what: str) -> float:
        """Check that every sent record is there once and in order. Returns the longest gap of the producer whose
        longest gap is shortest. A client's back-off lengthens a gap, so the faster client shows the cluster."""
        gaps = {work.name: work.stop() for work in self.works}
        for name, gap in gaps.items():
            self._measure(f"{what}, {name}", gap)
        for work in self.works:
            self.follower.wait_for(work)
        self.follower.stop()
        assert_exact(self.cluster.bootstrap, self.topic, *self.works)
        return min(gaps.values())


@pytest.fixture
def scenario(cluster: Cluster, at_work: AtWork, unique: Unique, measure: Measure) -> Scenario:
    return Scenario(cluster, at_work, unique("failover"), measure)


def test_a_leader_is_killed(scenario: Scenario, kind: str) -> None:
    """A broker that leads a partition and is not the active controller."""
    cluster = scenario.cluster
    active = cluster.active_controller()
    victim = next(
        leader for number in range(PARTITIONS) if (leader := cluster.leader(scenario.topic, number)) != active
    )
    cluster.nodes[victim].kill()
    scenario.goes_on()
    cluster.wait_until_gone(victim)
    cluster.mend()
    scenario.goes_on()
    gap = scenario.ends_well("leader killed")
    if kind == KAFKACOMPAT:
        assert gap < SESSION_TIMEOUT_S


def test_the_active_controller_is_killed(scenario: Scenario, kind: str) -> None:
    """The active controller also leads partitions."""
    cluster = scenario.cluster
    before = cluster.known_quorum()
    cluster.nodes[before.leader].kill()
    scenario.goes_on()
    cluster.wait_until_gone(before.leader)
    after = cluster.wait(
        lambda: (found := cluster.quorum()) and found.leader not in (-1, before.leader) and found,
        "another controller is active",
    )
    assert after.epoch > before.epoch
    cluster.mend()
    scenario.goes_on()
    gap = scenario.ends_well("active controller killed")
    if kind == KAFKACOMPAT:
        assert gap < SESSION_TIMEOUT_S


def test_two_of_three_stop_and_come_back(scenario: Scenario) -> None:
    """Without a majority no acks=all record is acknowledged. When the two nodes are back, everything continues without
    loss."""
    cluster = scenario.cluster
    leader = cluster.leader(scenario.topic)
    others = [node for node in cluster.nodes.values() if node.node_id != leader]
    for node in others:
        node.terminate()
    for node in others:
        assert node.wait_until_ended() in (0, 143)
    counted = [dict.fromkeys(work.acknowledged, 0) for work in scenario.works]
    for count, work in zip(counted, scenario.works, strict=True):
        count.update({each: len(done) for each, done in work.acknowledged.items()})
    for node in others:
        node.start()
    cluster.wait_until_whole()
    scenario.goes_on()
    for count, work in zip(counted, scenario.works, strict=True):
        assert all(len(done) > count[each] for each, done in work.acknowledged.items())
    scenario.ends_well("two of three stopped and started")


def test_a_node_hangs_past_its_session(scenario: Scenario) -> None:
    """SIGSTOP: the node's connections stay open, so only a timeout shows it. After SIGCONT the node finds other
    leaders and follows them."""
    cluster = scenario.cluster
    victim = cluster.leader(scenario.topic)
    cluster.nodes[victim].pause()
    cluster.wait_until_gone(victim)
    assert cluster.leader(scenario.topic) != victim
    scenario.goes_on()
    cluster.nodes[victim].resume()
    cluster.wait_until_whole()
    scenario.goes_on()
    scenario.ends_well("leader paused past its session")


def test_a_rolling_restart(scenario: Scenario, kind: str) -> None:
    """Each node stops by SIGTERM after it has handed its leaderships over. It is in sync again before the next one
    stops."""
    cluster = scenario.cluster
    for node in list(cluster.nodes.values()):
        node.terminate()

        def is_handed_over(node_id: int = node.node_id) -> bool:
            found = [cluster.partition(scenario.topic, number) for number in range(PARTITIONS)]
            return all(each is not None and each.leader not in (-1, node_id) for each in found)

        wait_until(is_handed_over, f"others lead what node {node.node_id} led")
        status = node.wait_until_ended()
        assert status in (0, 143), node.log_text()[-3000:]
        node.start()
        cluster.wait_until_whole()
    scenario.goes_on()
    gap = scenario.ends_well("rolling restart")
    if kind == KAFKACOMPAT:
        assert gap < SESSION_TIMEOUT_S


def test_every_node_is_killed_at_once(scenario: Scenario) -> None:
    """kill -9 of all three nodes. Acknowledged records were in the page caches of two nodes at least, and page caches
    survive."""
    cluster = scenario.cluster
    for node in cluster.nodes.values():
        node.kill()
    for node in cluster.nodes.values():
        node.start()
    cluster.wait_until_whole()
    scenario.goes_on()
    scenario.ends_well("all killed and started")
