"""The bugs that the simulation plants itself, with the tests that look for them seed by seed."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import SimulatedBug

CLUSTERS = "sim/_tests/test_cluster_simulation.py"
CONSUMER_GROUPS = "sim/_tests/test_consumer_group_simulation.py"
SHARE_GROUPS = "sim/_tests/test_share_group_simulation.py"
QUORUMS = "sim/_tests/test_quorum_simulation.py"


def simulated_bugs() -> list[SimulatedBug]:
    from kafkacompat.sim._tests import (
        test_cluster_simulation,
        test_consumer_group_simulation,
        test_quorum_simulation,
        test_share_group_simulation,
    )

    found = []
    for file, module in (
        (CLUSTERS, test_cluster_simulation),
        (CONSUMER_GROUPS, test_consumer_group_simulation),
        (SHARE_GROUPS, test_share_group_simulation),
        (QUORUMS, test_quorum_simulation),
    ):
        marks = module.test_a_planted_bug_is_found.pytestmark
        (plants,) = (mark.args[1] for mark in marks if mark.name == "parametrize")
        for plant in plants:
            name = plant.__name__
            test = f"{file}::test_a_planted_bug_is_found[{name}]"
            found.append(SimulatedBug(f"simulation: {name.replace('_', ' ')}", test))
    return found
