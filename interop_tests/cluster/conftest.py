"""Clusters for the tests: one of three nodes that most tests share, and clusters for single tests.

A test may leave the shared cluster in any state. Before the next test it is repaired, or created again if that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.workload import ConfluentWork, Follower, KafkaPythonWork, Work
from interop_tests.harness.broker import chosen_bootstrap, chosen_kind
from interop_tests.harness.notes import note

MakeCluster = Callable[..., Cluster]
Measure = Callable[[str, float], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder starts processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.needs_control)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of every node's log if a test fails."""
    report: Any = yield
    if report.failed:
        values = [getattr(each, "cluster", each) for each in getattr(item, "funcargs", {}).values()]
        for cluster in {id(each): each for each in values if isinstance(each, Cluster)}.values():
            report.sections.append(("Nodes", cluster.logs()))
    return report


@pytest.fixture
def measure(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Measure:
    """measure("what", seconds) adds a time to the test's report and prints it at the end of the run."""

    def measured(what: str, seconds: float) -> None:
        record_property(what, round(seconds, 2))
        note(request.config, "times without progress", f"{seconds:7.2f} s  {what} ({request.node.name})")

    return measured


@pytest.fixture(scope="session")
def kind() -> str:
    assert chosen_bootstrap() is None
    return chosen_kind()


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    """At most one cluster, created when it is first needed."""
    clusters: list[Cluster] = []
    yield clusters
    for cluster in clusters:
        cluster.close()


def is_as_made(cluster: Cluster) -> bool:
    """Whether the cluster has only the nodes 1 to 3. All must be voters, if the quorum can be asked at the moment."""
    found = cluster.quorum()
    voters = {1, 2, 3} if found is None else set(found.voters)
    return not cluster.is_spoiled and set(cluster.nodes) == voters == {1, 2, 3}


@pytest.fixture
def cluster(_shared: list[Cluster], kind: str, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The shared cluster of three combined nodes with Kafka's default timeouts, with all replicas in sync."""
    if _shared:
        try:
            assert is_as_made(_shared[0])
            _shared[0].mend()
            assert is_as_made(_shared[0])
        except AssertionError:
            _shared.pop().close()
    if not _shared:
        # Otherwise leaders would move back five minutes after an election, in the middle of a test that asks who
        # leads.
        settings = {"auto.leader.rebalance.enable": "false"}
        _shared.append(Cluster(kind, tmp_path_factory.mktemp("cluster"), settings=settings).start())
    return _shared[0]


@pytest.fixture
def make_cluster(kind: str, tmp_path: Path) -> Iterator[MakeCluster]:
    """make_cluster(nodes=3, ...) starts a cluster for one test. It is killed when the test ends."""
    made: list[Cluster] = []

    def make(kinds: Any = None, start: bool = True, **options: Any) -> Cluster:
        cluster = Cluster(kinds or kind, tmp_path / f"cluster-{len(made)}", **options)
        made.append(cluster)
        if start:
            cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def at_work() -> Iterator[Callable[..., tuple[list[Work], Follower]]]:
    """at_work(cluster, topic, partitions) starts producers of two clients and a consumer on the topic."""
    started: list[Work | Follower] = []

    def begin(cluster: Cluster, topic: str, partitions: int) -> tuple[list[Work], Follower]:
        follower = Follower(cluster.bootstrap, topic, partitions).start()
        started.append(follower)
        works: list[Work] = []
        for client, name in ((ConfluentWork, "confluent"), (KafkaPythonWork, "kafka-python")):
            work = client(cluster.bootstrap, topic, partitions, name)
            started.append(work)
            works.append(work.start())
        return works, follower

    yield begin
    for each in started:
        each._ended.set()
