"""A cluster is upgraded node by node under load: from Apache Kafka 4.3 to kafkacompat, then its levels, then to Apache
Kafka 4.4. It stays at its levels until it is told to raise them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cli.command import output_of, refusal_of
from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION

AtWork = Callable[..., tuple[list[Work], Follower]]
CLEAN = {APACHE: 143, KAFKACOMPAT: 0}
ROLES = [f"{BROKER},{CONTROLLER}"] * 3

pytestmark = pytest.mark.needs_control


def levels(cluster: Cluster) -> tuple[str, str]:
    lines = output_of("features", "describe", "--bootstrap", cluster.bootstrap).splitlines()
    rows = {line.split()[0]: line.split()[1] for line in lines}
    return rows["metadata.version"], rows["share.version"]


def replace(
    cluster: Cluster, node_id: int, kind: str, works: list[Work], version: str = KAFKA_VERSION
) -> None:
    """Stop a node, and start another program on its directory."""
    node = cluster.nodes[node_id]
    node.terminate()
    assert node.wait_until_ended() == CLEAN[node.kind], node.log_text()[-2000:]
    node.kind, node.version = kind, version
    node.start()
    cluster.wait_until_whole()
    for work in works:
        work.wait_for_progress()


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., Cluster]:
    return lambda kind, version: Cluster(kind, tmp_path / "cluster", 3, ROLES, version=version)


def test_a_cluster_of_the_release_before_moves_to_ours_and_to_the_next_release(
    cluster: Callable[..., Cluster], at_work: AtWork
) -> None:
    upgraded = cluster(APACHE, BEFORE).start()
    try:
        topic = upgraded.create_topic("upgraded", 3)
        works, follower = at_work(upgraded, topic, 3)
        where = ("--bootstrap", upgraded.bootstrap)
        raised = ("features", "upgrade", "--release-version", "4.4", *where)
        for number in (1, 2, 3):
            refused = refusal_of(*raised, "--dry-run")
            assert re.search(r"(Broker|controller|Controller) \d only supports versions 7-30", refused), (
                refused
            )
            replace(upgraded, number, KAFKACOMPAT, works)
            assert levels(upgraded) == ("4.3-IV0", "1")
        said = output_of(*raised)
        assert "metadata.version is 4.4-IV2" in said
        assert "share.version is 2" in said
        upgraded.wait(lambda: levels(upgraded) == ("4.4-IV2", "2"), "every node has the levels")
        for number in (2, 3, 1):
            replace(upgraded, number, APACHE, works)
            assert levels(upgraded) == ("4.4-IV2", "2")
        for work in works:
            work.stop()
            follower.wait_for(work)
        assert_exact(upgraded.bootstrap, topic, *works)
    finally:
        upgraded.close()
