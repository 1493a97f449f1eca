"""Consumer groups (KIP-848) in every state continue when their coordinator changes: another program opens the data
directory, the node dies, stops, hangs, or another node becomes the coordinator, of the same kind or the other one.

These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.cluster import views
from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.moving import elect, reassign, serving_leader
from interop_tests.cluster.test_mixed import SETTINGS as MIXED
from interop_tests.consumer_groups.held_groups import (
    COORDINATOR_MOVES,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    HeldGroups,
)
from interop_tests.consumer_groups.load import GROUP, Load, described_load
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, Silence

pytestmark = pytest.mark.needs_control

OFFSETS_TOPIC = "__consumer_offsets"
LOAD = "load"
LOAD_PARTITIONS = 3
OTHER = {APACHE: KAFKACOMPAT, KAFKACOMPAT: APACHE}
QUICK = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}


@pytest.mark.parametrize("first", [APACHE, KAFKACOMPAT])
def test_the_other_program_opens_the_directory_and_gives_it_back(tmp_path: Path, first: str) -> None:
    """Each program says what the other one said. The members continue, and leave their states as they would have."""
    broker = SwitchingBroker(first, tmp_path / "node", True, SETTINGS)
    held = HeldGroups(lambda: broker.bootstrap)
    try:
        broker.start()
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        coordinator(held.home(), "any")
        said = held.begin()
        broker.become(OTHER[first])
        held.has_moved()
        assert held.said() == said
        held.go_on()
        held.finish()
        said = held.begin()
        broker.become(first)
        held.has_moved()
        assert held.said() == said
        held.go_on()
        held.finish()
    finally:
        held.close()
        broker.kill()


# --- clusters


class Scene:
    """A cluster with the groups that are held in their states, and a group at work. One node coordinates all groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=len(cluster.brokers))
        cluster.create_topic(LOAD, LOAD_PARTITIONS, replication_factor=len(cluster.brokers))
        with Connection(cluster.brokers[0].bootstrap) as connection:
            # The offsets topic is created when a group is first looked for.
            connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]})
        cluster.leader(OFFSETS_TOPIC)
        self.held = HeldGroups(self.find)
        self.load = Load(cluster.bootstrap, LOAD, LOAD_PARTITIONS, self.told)

    def close(self) -> None:
        self.load.abandon()
        self.held.close()

    # the coordinator

    def home(self) -> int | None:
        """The coordinator in the newest of the brokers' views, or None if it does not serve. A node that was paused may
        still take itself for the coordinator."""
        found = serving_leader(self.cluster, OFFSETS_TOPIC)
        return None if found is None else found[0]

    def find(self) -> str | None:
        home = self.home()
        return None if home is None else self.cluster.nodes[home].bootstrap

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of the coordinator. None while there is none."""
        address = self.find()
        if address is None:
            return None
        try:
            with Connection(address, timeout_s=5) as connection:
                (found,) = connection.call(api, version, body)["Groups"]
        except views.BROKEN:
            return None
        if found["ErrorCode"] in COORDINATOR_MOVES:
            return None
        assert found["ErrorCode"] == 0, found
        return found

    def told(self) -> dict[int, int] | None:
        """The committed offsets of the group at work."""
        asked = {"GroupId": GROUP, "MemberId": None, "MemberEpoch": -1, "Topics": None}
        found = self.ask("OffsetFetch", 9, {"Groups": [asked], "RequireStable": True})
        if found is None:
            return None
        return {
            each["PartitionIndex"]: each["CommittedOffset"]
            for topic in found["Topics"]
            for each in topic["Partitions"]
        }

    def described(self, members: int) -> dict[str, Any]:
        """The group at work, when it has this number of members."""
        body = {"GroupIds": [GROUP], "IncludeAuthorizedOperations": False}

        def probe() -> dict[str, Any] | None:
            found = self.ask("ConsumerGroupDescribe", 1, body)
            return found if found is not None and len(found["Members"]) == members else None

        return wait_until(probe, f"the group has {members} members")

    def settled(self, members: int) -> dict[str, Any]:
        """The group at work, when this number of members shares the partitions."""

        def probe() -> dict[str, Any] | None:
            found = self.described(members)
            return found if found["GroupState"] == "Stable" else None

        return described_load(self.cluster.wait(probe, "the group is stable"))

    def survives(self, change: Callable[[int], None], members: int) -> None:
        """Hold groups in every state while `change` happens to the coordinator, whose id it gets. The group at work
        gets this number of members just before."""
        home = self.home()
        assert home is not None
        said = self.held.begin()
        if members > len(self.load.members):
            self.load.add()
        elif members < len(self.load.members):
            self.load.drop()
        self.described(members)
        try:
            change(home)
            self.held.has_moved()
            assert self.held.said() == said
            self.held.go_on()
            self.held.finish()
            self.load.goes_on()
        except AssertionError as error:
            error.add_note(f"{change.__name__}, node {home} was the coordinator\n{self.cluster.logs()}")
            raise


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    made: list[tuple[Cluster, Scene | None]] = []

    def make(kinds: list[str], roles: Any, settings: dict[str, str]) -> Scene:
        cluster = Cluster(
            kinds,
            tmp_path / "cluster",
            len(kinds),
            roles,
            {**settings, **QUICK, **SETTINGS, "auto.leader.rebalance.enable": "false"},
        )
        made.append((cluster, None))
        cluster.start()
        made.append((cluster, Scene(cluster)))
        return made[-1][1]

    yield make
    for cluster, each in reversed(made):
        if each is not None:
            each.close()
        cluster.close()


def test_a_coordinator_of_three_is_replaced(scene: Callable[..., Scene]) -> None:
    """A member of the group at work has just joined or left when its coordinator is killed, stopped, paused or moved."""
    at = scene([KAFKACOMPAT] * 3, "broker,controller", {})
    cluster = at.cluster
    at.load.start(2)
    at.settled(2)

    def next_of(node_id: int) -> int:
        return node_id % 3 + 1

    def killed(home: int) -> None:
        cluster.nodes[home].kill()

    def stopped(home: int) -> None:
        assert cluster.nodes[home].stop() == 0

    def paused(home: int) -> None:
        cluster.nodes[home].pause()

    def paused_for_a_moment(home: int) -> None:
        cluster.nodes[home].pause()
        with Connection(cluster.nodes[home].bootstrap, timeout_s=1) as connection, pytest.raises(Silence):
            connection.call("ApiVersions", 0, {})
        cluster.nodes[home].resume()

    def elected(home: int) -> None:
        elect(cluster, OFFSETS_TOPIC, next_of(home))

    def reassigned(home: int) -> None:
        reassign(cluster, OFFSETS_TOPIC, [next_of(home)])

    changes = (killed, stopped, paused, elected, reassigned, paused_for_a_moment)
    for change, members in zip(changes, (3, 2, 3, 2, 3, 2), strict=True):
        home = at.home()
        at.survives(change, members)
        assert change is paused_for_a_moment or at.home() != home
        cluster.mend()
        at.settled(members)
    at.load.end()


def test_the_coordinator_moves_between_apache_kafka_and_kafkacompat(scene: Callable[..., Scene]) -> None:
    """At Kafka's default group.version. No member of the group at work gets another epoch or other partitions."""
    at = scene([KAFKACOMPAT, KAFKACOMPAT, APACHE], [CONTROLLER, BROKER, BROKER], MIXED)
    ours, theirs = 2, 3
    told = {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1"}
    for node in at.cluster.brokers:
        with Connection(node.bootstrap) as connection:
            features = connection.call("ApiVersions", 4, told)["FinalizedFeatures"]
        assert {each["Name"]: each["MaxVersionLevel"] for each in features}["group.version"] == 1
    elect(at.cluster, OFFSETS_TOPIC, ours)
    at.load.start(2)
    before = at.settled(2)

    def elected(home: int) -> None:
        elect(at.cluster, OFFSETS_TOPIC, ours + theirs - home)

    def killed(home: int) -> None:
        at.cluster.nodes[home].kill()

    def stopped(home: int) -> None:
        assert at.cluster.nodes[home].stop() in (0, 143)

    for change, home in ((elected, theirs), (elected, ours), (killed, theirs), (stopped, ours)):
        at.survives(change, 2)
        assert at.home() == home
        assert at.settled(2) == before
        if change is killed:
            at.cluster.mend()
    at.load.end()
