"""Clusters for the tests: one of three nodes that most share, and clusters of a test's own.

A test leaves the shared cluster as it likes; before the next one it is mended, or made anew if it cannot be.
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
    """Every test here starts processes of its own."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.needs_control)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failure shows the end of every node's log."""
    report: Any = yield
    if report.failed:
        values = [getattr(each, "cluster", each) for each in getattr(item, "funcargs", {}).values()]
        for cluster in {id(each): each for each in values if isinstance(each, Cluster)}.values():
            report.sections.append(("Nodes", cluster.logs()))
    return report


@pytest.fixture
def measure(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Measure:
    """measure("what", seconds) notes a time in the test's report and shows it at the end of the run."""

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
    """At most one cluster, made when it is first needed."""
    clusters: list[Cluster] = []
    yield clusters
    for cluster in clusters:
        cluster.close()


def is_as_made(cluster: Cluster) -> bool:
    """Three nodes, which vote, but for what the quorum cannot tell just now."""
    found = cluster.quorum()
    voters = {1, 2, 3} if found is None else set(found.voters)
    return not cluster.is_spoiled and set(cluster.nodes) == voters == {1, 2, 3}


@pytest.fixture
def cluster(_shared: list[Cluster], kind: str, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The shared cluster of three combined nodes with Kafka's default times, whole."""
    if _shared:
        try:
            assert is_as_made(_shared[0])
            _shared[0].mend()
            assert is_as_made(_shared[0])
        except AssertionError:
            _shared.pop().close()
    if not _shared:
        # Five minutes after an election leaders would go back in the midst of a test that asks who leads.
        settings = {"auto.leader.rebalance.enable": "false"}
        _shared.append(Cluster(kind, tmp_path_factory.mktemp("cluster"), settings=settings).start())
    return _shared[0]


@pytest.fixture
def make_cluster(kind: str, tmp_path: Path) -> Iterator[MakeCluster]:
    """make_cluster(nodes=3, ...) starts a cluster of the test's own; it is killed when the test ends."""
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
    """at_work(cluster, topic, partitions) sets producers of two clients and a consumer to work on the topic."""
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
