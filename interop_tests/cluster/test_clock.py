"""One node's wall clock jumps forwards and back while clients work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from interop_tests.cluster.clock import WallClock
from interop_tests.cluster.conftest import MakeCluster, Measure
from interop_tests.cluster.test_failover import SESSION_TIMEOUT_S, Scenario
from interop_tests.cluster.workload import Follower, Work
from interop_tests.harness.broker import KAFKACOMPAT

AtWork = Callable[..., tuple[list[Work], Follower]]
HOUR_S = 3600


def test_a_nodes_clock_jumps(
    make_cluster: MakeCluster, at_work: AtWork, measure: Measure, kind: str, tmp_path: Path
) -> None:
    """The clocks of the active controller and of another node are an hour ahead, then an hour behind, then correct
    again. No node counts as dead for long only because of its clock. No record is lost or duplicated."""
    cluster = make_cluster(start=False)
    clocks = {}
    for node_id, node in cluster.nodes.items():
        clocks[node_id] = WallClock(tmp_path / f"clock-{node_id}")
        node.environment.update(clocks[node_id].environment)
    cluster.start()
    scenario = Scenario(cluster, at_work, "clock", measure)
    active = cluster.active_controller()
    other = next(node_id for node_id in cluster.nodes if node_id != active)
    for node_id in (active, other):
        for offset_s in (HOUR_S, -HOUR_S, 0):
            clocks[node_id].jump(offset_s)
            scenario.goes_on()
    cluster.wait_until_whole()
    assert all(node.is_running for node in cluster.nodes.values())
    gap = scenario.ends_well("clock jumped")
    if kind == KAFKACOMPAT:
        assert gap < SESSION_TIMEOUT_S
