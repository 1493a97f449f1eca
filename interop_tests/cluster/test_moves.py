"""Brokers join, partitions move to them while clients work, and brokers leave for good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from interop_tests.cluster import views
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.test_groups import coordinator
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection

REASSIGN = "reassign.ReassignPartitionsCommand"
NEW = (4, 5)
PARTITIONS = 3
BALLAST_BYTES = 6_000_000
SLOW_BYTES_PER_S = 100_000
QUICK_BYTES_PER_S = 50_000_000
AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]


@pytest.fixture
def grown(cluster: Cluster, kind: str) -> Iterator[Cluster]:
    """The shared cluster with brokers 4 and 5, which are removed and unregistered afterwards."""
    # The offsets topic is created when a group is first looked for. It must not be on the new brokers.
    coordinator(cluster, "any")
    added = [cluster.add_node(kind, node_id) for node_id in NEW]
    yield cluster
    for node in added:
        cluster.forget(node)
    for node in added:
        cluster.wait_until_gone(node.node_id)


class Plan:
    """Run kafka-reassign-partitions with one JSON file."""

    def __init__(
        self, tools: KafkaTools, cluster: Cluster, path: Path, moves: dict[tuple[str, int], Sequence[int]]
    ) -> None:
        self._tools = tools
        self._cluster = cluster
        self._path = path
        partitions = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in moves.items()
        ]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def run(self, *options: str, status: int | None = 0) -> str:
        return self._tools.run(
            REASSIGN,
            *("--bootstrap-server", self._cluster.bootstrap, "--reassignment-json-file", str(self._path)),
            *options,
            status=status,
        ).out

    def wait_until_complete(self) -> str:
        return self._cluster.wait(
            lambda: (said := self.run("--verify", status=None)) and "in progress" not in said and said,
            "the move is complete",
        )


def throttles(tools: KafkaTools, cluster: Cluster) -> str:
    """The throttles of brokers and topics that kafka-configs shows."""
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe", "--entity-type"]
    said = [tools.run("ConfigCommand", *arguments, each).out for each in ("brokers", "topics")]
    return "\n".join(line for line in "".join(said).splitlines() if "throttled" in line)


def fill(cluster: Cluster, topic: str, number: int) -> None:
    """Data that makes a throttled move of the partition take a while."""
    with Connection(cluster.nodes[cluster.leader(topic, number)].bootstrap) as connection:
        for _ in range(BALLAST_BYTES // 500_000):
            result = produce(connection, topic, BatchPlan([b"x" * 500_000]), number)
            assert result["ErrorCode"] == 0, result


def is_replicated_on(cluster: Cluster, topic: str, number: int, *node_ids: int) -> None:
    cluster.wait(
        lambda: (
            (found := cluster.partition(topic, number))
            and found.replicas == node_ids
            and set(found.isr) == set(node_ids)
        ),
        f"{topic}-{number} is on {node_ids}",
    )


def test_partitions_move_to_new_brokers(
    grown: Cluster,
    tools: KafkaTools,
    at_work: AtWork,
    unique: Unique,
    tmp_path: Path,
    measure: Measure,
) -> None:
    """Leaders and followers move with a throttle, first slowly, then quickly. Clients neither stop nor starve."""
    topic = grown.create_topic(unique("moved"), assignment=[[1, 2], [2, 3], [3, 1]])
    heavy = grown.create_topic(unique("heavy"), assignment=[[1, 2]])
    fill(grown, heavy, 0)
    works, follower = at_work(grown, topic, PARTITIONS)
    moves = {(topic, 0): (4, 5), (topic, 1): (2, 4), (topic, 2): (5, 3), (heavy, 0): (4, 2)}
    plan = Plan(tools, grown, tmp_path / "plan.json", moves)
    said = plan.run("--execute", "--throttle", str(SLOW_BYTES_PER_S))
    assert "Current partition replica assignment" in said
    assert f"The inter-broker throttle limit was set to {SLOW_BYTES_PER_S} B/s" in said
    assert "Successfully started partition reassignments for" in said
    shown = throttles(tools, grown)
    assert f"leader.replication.throttled.rate={SLOW_BYTES_PER_S}" in shown
    assert f"follower.replication.throttled.rate={SLOW_BYTES_PER_S}" in shown
    assert "leader.replication.throttled.replicas=0:1,0:2" in shown
    assert "follower.replication.throttled.replicas=0:4" in shown
    for work in works:
        work.wait_for_progress()
    # The small partitions share the throttle with the large one, which takes a minute at this rate.
    listed = tools.run(REASSIGN, "--bootstrap-server", grown.bootstrap, "--list").out
    assert f"{heavy}-0: replicas: 4,2,1. adding: 4. removing: 1." in listed, listed
    found = grown.partition(heavy)
    assert found is not None
    assert (set(found.replicas), set(found.isr)) == ({4, 2, 1}, {1, 2})
    assert "is still in progress" in plan.run("--verify", status=None)
    said = plan.run("--execute", "--additional", "--throttle", str(QUICK_BYTES_PER_S))
    assert f"The inter-broker throttle limit was set to {QUICK_BYTES_PER_S} B/s" in said
    said = plan.wait_until_complete()
    for name, number in moves:
        assert f"Reassignment of partition {name}-{number} is completed." in said
    assert "Clearing broker-level throttles" in said
    assert throttles(tools, grown) == ""
    for (name, number), replicas in moves.items():
        is_replicated_on(grown, name, number, *replicas)
    assert grown.leader(heavy) in (4, 2)
    for work in works:
        work.wait_for_progress()
    gaps = [work.stop() for work in works]
    for work, gap in zip(works, gaps, strict=True):
        measure(f"partitions moved, {work.name}", gap)
        follower.wait_for(work)
    assert_exact(grown.bootstrap, topic, *works)
    back = {(topic, 0): (1, 2), (topic, 1): (2, 3), (topic, 2): (3, 1), (heavy, 0): (1, 2)}
    retreat = Plan(tools, grown, tmp_path / "back.json", back)
    retreat.run("--execute")
    retreat.wait_until_complete()
    assert_exact(grown.bootstrap, topic, *works)
    left = grown.ask(views.all_partitions)
    assert left is not None
    assert not [where for where, each in left.items() if set(each.replicas) & set(NEW)]
    unknown = tools.run(
        "ClusterTool", "unregister", "--bootstrap-server", grown.bootstrap, "--id", "99", status=1
    )
    assert "BrokerIdNotRegisteredException" in unknown.err
    for node_id in NEW:
        assert grown.nodes[node_id].stop() in (0, 143)
        grown.wait_until_gone(node_id)
        told = tools.run(
            "ClusterTool", "unregister", "--bootstrap-server", grown.bootstrap, "--id", str(node_id)
        )
        assert f"Broker {node_id} is no longer registered." in told.out


def test_a_move_is_cancelled(grown: Cluster, tools: KafkaTools, unique: Unique, tmp_path: Path) -> None:
    """Everything is as before: replicas, leader, no throttle, and no trace of the partition on the new broker."""
    topic = grown.create_topic(unique("cancelled"), assignment=[[1, 2, 3]])
    fill(grown, topic, 0)
    before = grown.partition(topic)
    plan = Plan(tools, grown, tmp_path / "plan.json", {(topic, 0): (4, 5, 1)})
    plan.run("--execute", "--throttle", str(SLOW_BYTES_PER_S))
    grown.wait(
        lambda: (found := grown.partition(topic)) and set(found.replicas) == {1, 2, 3, 4, 5},
        "it is under way",
    )
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in plan.run("--cancel")
    is_replicated_on(grown, topic, 0, 1, 2, 3)
    after = grown.partition(topic)
    assert before is not None
    assert after is not None
    assert after.leader == before.leader
    assert throttles(tools, grown) == ""
    assert (
        "No partition reassignments found."
        in tools.run(REASSIGN, "--bootstrap-server", grown.bootstrap, "--list").out
    )
    for node_id in NEW:
        folder = grown.nodes[node_id].log_dirs[0] / f"{topic}-0"
        grown.wait(lambda folder=folder: not folder.exists(), f"{folder} is gone")


def test_a_broker_dies_in_the_middle_of_a_move(
    grown: Cluster, tools: KafkaTools, at_work: AtWork, unique: Unique, tmp_path: Path
) -> None:
    """The target broker is killed with -9 and comes back: the move continues by itself."""
    # The first partition may have moved when the broker dies. Then one replica is left, which is enough to continue.
    topic = grown.create_topic(
        unique("broken"), assignment=[[1, 2], [2, 3], [3, 1]], configs={"min.insync.replicas": "1"}
    )
    heavy = grown.create_topic(unique("heavy"), assignment=[[1, 2]])
    fill(grown, heavy, 0)
    works, follower = at_work(grown, topic, PARTITIONS)
    plan = Plan(tools, grown, tmp_path / "plan.json", {(topic, 0): (4, 2), (heavy, 0): (4, 2)})
    plan.run("--execute", "--throttle", str(SLOW_BYTES_PER_S))
    grown.nodes[4].kill()
    for work in works:
        work.wait_for_progress()
    found = grown.partition(heavy)
    assert found is not None
    assert set(found.replicas) == {4, 2, 1}, "the heavy one's move is under way"
    grown.nodes[4].start()
    grown.wait_for_brokers(4)
    plan.run("--execute", "--additional", "--throttle", str(QUICK_BYTES_PER_S))
    plan.wait_until_complete()
    is_replicated_on(grown, topic, 0, 4, 2)
    is_replicated_on(grown, heavy, 0, 4, 2)
    for work in works:
        work.wait_for_progress()
        work.stop()
        follower.wait_for(work)
    assert_exact(grown.bootstrap, topic, *works)
    back = Plan(tools, grown, tmp_path / "back.json", {(topic, 0): (1, 2), (heavy, 0): (1, 2)})
    back.run("--execute")
    back.wait_until_complete()
