"""Nodes are disconnected from each other, in both directions or in one, while clients can reach all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.cluster import views
from interop_tests.cluster.asking import write
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.network import Network
from interop_tests.cluster.test_failover import Scenario
from interop_tests.cluster.workload import Follower, Work

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
# Shorter than Kafka's defaults, in the same proportions, because only timeouts reveal a disconnected node.
TIMES = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "6000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def spread(network: Network, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster in which each node has its own namespace."""
    places = [host.place for host in network.hosts.values()]
    cluster = Cluster(kind, tmp_path_factory.mktemp("spread"), settings=TIMES, places=places)
    yield cluster.start()
    cluster.close()


@pytest.fixture
def scenario(
    network: Network, spread: Cluster, at_work: AtWork, unique: Unique, measure: Measure
) -> Iterator[Scenario]:
    network.heal()
    spread.mend()
    yield Scenario(spread, at_work, unique("network"), measure)
    network.heal()


def others_of(cluster: Cluster, node_id: int) -> list[int]:
    return [each for each in cluster.nodes if each != node_id]


def others_lead(cluster: Cluster, topic: str, victim: int) -> None:
    """Wait until the connected nodes have leaders for all partitions among themselves. The disconnected node may
    believe otherwise."""
    others = [cluster.nodes[each] for each in others_of(cluster, victim)]
    cluster.wait(
        lambda: (
            (found := views.ask(others, lambda connection: views.partitions(connection, topic)))
            and all(each.leader not in (-1, victim) for each in found.values())
        ),
        "the others lead",
    )


def test_a_leader_is_cut_off(scenario: Scenario, network: Network) -> None:
    """Clients still reach the disconnected leader, but its followers cannot acknowledge its writes."""
    cluster = scenario.cluster
    active = cluster.active_controller()
    victim = others_of(cluster, active)[0]
    network.separate(victim, *others_of(cluster, victim))
    others_lead(cluster, scenario.topic, victim)
    scenario.goes_on()
    network.heal()
    cluster.wait_until_whole()
    scenario.goes_on()
    scenario.ends_well("leader cut off")


def test_the_active_controller_is_cut_off(scenario: Scenario, network: Network) -> None:
    """The leader resigns by itself, because no majority fetches from it. The others elect one of them."""
    cluster = scenario.cluster
    before = cluster.known_quorum()
    victim = before.leader
    network.separate(victim, *others_of(cluster, victim))
    others_lead(cluster, scenario.topic, victim)
    scenario.goes_on()
    others = [cluster.nodes[each] for each in others_of(cluster, victim)]
    after = cluster.wait(
        lambda: (found := views.ask(others, views.quorum)) and found.leader != victim and found,
        "another controller is active",
    )
    assert after.epoch > before.epoch
    network.heal()
    cluster.wait_until_whole()
    scenario.goes_on()
    final = cluster.known_quorum()
    assert final.leader != victim, "the one that came back must not disturb the quorum"
    scenario.ends_well("active controller cut off")


@pytest.mark.parametrize("direction", ["it is not heard", "it hears nothing"])
def test_a_one_way_cut(scenario: Scenario, network: Network, direction: str) -> None:
    """Packets from one node are lost, or packets to it. In both cases TCP makes no progress between it and the others."""
    cluster = scenario.cluster
    active = cluster.active_controller()
    victim = others_of(cluster, active)[0]
    others = others_of(cluster, victim)
    if direction == "it is not heard":
        network.lose(victim, *others)
    else:
        for other in others:
            network.lose(other, victim)
    others_lead(cluster, scenario.topic, victim)
    scenario.goes_on()
    network.heal()
    cluster.wait_until_whole()
    scenario.goes_on()
    scenario.ends_well(f"one-way cut, {direction}")


def test_two_followers_do_not_reach_each_other(scenario: Scenario, network: Network) -> None:
    """Both nodes reach the active controller. The quorum stays stable (because of pre-vote), and clients continue."""
    cluster = scenario.cluster
    before = cluster.known_quorum()
    one, two = others_of(cluster, before.leader)
    network.separate(one, two)
    scenario.goes_on()
    topic = cluster.create_topic(scenario.topic + "-apart", assignment=[[before.leader, one]])
    assert write(cluster, topic, b"meanwhile")["ErrorCode"] == 0
    # If one of the nodes leads a partition, it removes the other from the ISR. Time for several elections has passed
    # then.
    cluster.wait(
        lambda: all(
            (found := cluster.partition(scenario.topic, number)) and not {one, two} <= set(found.isr)
            for number in range(3)
            if cluster.leader(scenario.topic, number) in (one, two)
        ),
        "the two are not in sync with each other",
    )
    scenario.goes_on()
    after = cluster.known_quorum()
    assert (after.leader, after.epoch) == (before.leader, before.epoch)
    network.heal()
    cluster.wait_until_whole()
    scenario.ends_well("followers cut off from each other")
