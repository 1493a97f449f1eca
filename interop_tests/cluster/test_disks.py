"""A broker's disk becomes full, one of two disks fails, and replicas move from one disk of a broker to another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.faults.filling import fill
from interop_tests.faults.mounts import mounted_tmpfs
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.wire import Connection

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
SETTINGS = {"log.index.size.max.bytes": "4096"}
NODE = 4


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with mounted_tmpfs(tmp_path / "small", "24m") as folder:
        yield folder


def places(cluster: Cluster, topic: str) -> dict[int, Path]:
    """The log directory of each partition on node 4."""
    with Connection(cluster.nodes[NODE].bootstrap) as connection:
        reply = connection.call("DescribeLogDirs", 4, {"Topics": None})
    return {
        partition["PartitionIndex"]: Path(directory["LogDir"])
        for directory in reply["Results"]
        if directory["ErrorCode"] == 0
        for each in directory["Topics"]
        if each["Name"] == topic
        for partition in each["Partitions"]
        if not partition["IsFutureKey"]
    }


def test_a_leaders_disk_becomes_full(
    cluster: Cluster, kind: str, at_work: AtWork, unique: Unique, small: Path, measure: Measure
) -> None:
    """Other brokers take over while the disk is full. When there is room, the broker catches up. If it ended, it is
    started again."""
    node = cluster.add_node(kind, NODE, settings={**SETTINGS, "log.dirs": str(small / "data")})
    try:
        topic = cluster.create_topic(unique("full"), assignment=[[NODE, 1, 2], [1, NODE, 3]])
        works, follower = at_work(cluster, topic, 2)
        ballast = fill(small)
        for work in works:
            work.wait_for_progress(60, records=200)
        cluster.wait(lambda: cluster.leader(topic, 0) != NODE, "another one leads")
        ballast.unlink()
        if node.is_running:
            node.stop()
        cluster.mend()
        for work in works:
            work.wait_for_progress()
            measure(f"disk full, {work.name}", work.stop())
            follower.wait_for(work)
        assert_exact(cluster.bootstrap, topic, *works)
    finally:
        cluster.forget(node)


def test_one_of_two_disks_fails(
    cluster: Cluster,
    kind: str,
    at_work: AtWork,
    unique: Unique,
    small: Path,
    tools: KafkaTools,
    tmp_path: Path,
) -> None:
    """JBOD: a partition moves from disk to disk, and then one disk fails. The broker stays and leads the partitions on
    the other disk. Other brokers lead the partitions of the failed disk."""
    whole = tmp_path / "whole"
    settings = {**SETTINGS, "log.dirs": f"{whole},{small / 'data'}"}
    node = cluster.add_node(kind, NODE, settings=settings)
    try:
        topic = cluster.create_topic(unique("disks"), assignment=[[NODE, 1, 2]] * 4)
        found = cluster.wait(
            lambda: len(places(cluster, topic)) == 4 and places(cluster, topic), "4 replicas"
        )
        assert sorted(found.values()) == sorted([whole] * 2 + [small / "data"] * 2)
        works, follower = at_work(cluster, topic, 4)
        mover = next(number for number, where in found.items() if where == small / "data")
        plan = tmp_path / "move.json"
        move = {
            "topic": topic,
            "partition": mover,
            "replicas": [NODE, 1, 2],
            "log_dirs": [str(whole), "any", "any"],
        }
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))

        def reassign(*options: str) -> str:
            arguments = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan)]
            return tools.run("reassign.ReassignPartitionsCommand", *arguments, *options, status=None).out

        started = f"Successfully started moving log directory to {whole} for replica {topic}-{mover} with broker {NODE}"
        assert started in reassign("--execute")
        cluster.wait(lambda: places(cluster, topic).get(mover) == whole, "the replica has moved")
        cluster.wait(
            lambda: (
                f"Reassignment of replica {topic}-{mover}-{NODE} completed successfully."
                in reassign("--verify")
            ),
            "the tool says so",
        )
        for work in works:
            work.wait_for_progress()
        (left,) = (number for number, where in places(cluster, topic).items() if where == small / "data")
        fill(small)
        for work in works:
            work.wait_for_progress(60, records=200)
        cluster.wait(
            lambda: cluster.leader(topic, left) != NODE, "another one leads what was on the full disk"
        )
        assert node.is_running
        others = set(range(4)) - {left}
        assert {cluster.leader(topic, number) for number in others} == {NODE}
        assert set(places(cluster, topic)) == others
        for work in works:
            work.stop()
            follower.wait_for(work)
        assert_exact(cluster.bootstrap, topic, *works)
    finally:
        cluster.forget(node)
