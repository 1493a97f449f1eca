"""Clusters with a streams group: no oracle fails, everything occurs, and planted bugs are found.

A failure names its seed: `python -m kafkacompat.sim --streams-groups --seed N --trace`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import (
    SHARES,
    Kind,
    finding_seed,
    hash_of,
    listed,
    run_first,
    run_share,
    tell_of_another,
    trace_hashes,
)
from kafkacompat.sim._tests.streams_group_mutants import (
    RARE_STREAMS_GROUP_MUTANTS,
    STREAMS_GROUP_MUTANTS,
    STREAMS_GROUP_MUTANTS_SEEN_AT,
)
from kafkacompat.sim.cluster_options import MIN_CLUSTER_EVENTS, MIN_CLUSTER_FAULTS, streams_group_shape
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import ClusterCounters, StreamsGroupCounters
from kafkacompat.sim.streams_groups import ACTIVE, STANDBY

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("quiet_nodes")]

SEEDS = 100
"""Maximum number of seeds until everything has occurred, or a planted bug is found."""
RARE = frozenset({"returned", "instances_fenced", "tasks_refused", "shut_down"})
"""Each needs options that few seeds have, or a fault at the right moment. Dozens of seeds may pass before that."""


def simulation_of(seed: int) -> ClusterSimulation:
    return ClusterSimulation(seed, **streams_group_shape(seed))


def run(seed: int) -> tuple[ClusterCounters, StreamsGroupCounters]:
    simulation = simulation_of(seed)
    return simulation.run(), simulation.streams_groups.counters


KIND = Kind(
    name="clusters with streams groups",
    option="--streams-groups ",
    run=run,
    fewest_events=MIN_CLUSTER_EVENTS,
    fewest_faults=MIN_CLUSTER_FAULTS,
    budget_s=1.0,
    at_least=8,
    first=4,
    rare=RARE,
)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_fails(share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(KIND, share)
    tell("seeds of clusters with streams groups", ran.seeds)
    tell("CPU seconds that clusters with streams groups took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


def test_everything_occurs(tell: Callable[[str, float], None]) -> None:
    """Standbys, refused topologies, missing topics, upgrades, loads ...: a count of zero shows a blind spot."""
    ran = run_first(KIND, StreamsGroupCounters(), SEEDS)
    tell("seeds of clusters with streams groups", ran.seeds)
    tell("CPU seconds that clusters with streams groups took", ran.cpu_s)
    tell("seeds until everything occurred to streams groups", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


def test_a_task_runs_in_a_role_after_another_is_given_up() -> None:
    """Until then the coordinator may take it back at once, because the member says that it does not run it."""
    member = simulation_of(0).streams_groups.application.members[0]
    standby, active = (STANDBY, "1", 2), (ACTIVE, "1", 2)
    member.owned, member._to_revoke = {standby, active}, {standby}
    assert member.alone(member.owned) == set()
    assert not member.heartbeat_request().active_tasks
    member.owned, member._to_revoke = {active}, set()
    assert member.alone(member.owned) == {active[1:]}


def test_a_seed_is_one_run_in_this_process_and_in_another() -> None:
    """Neither hash seeds nor earlier runs may change the behaviour."""
    simulation = simulation_of(0)
    events = simulation.run().events
    assert trace_hashes(KIND, 0) == {hash_of(simulation.env.trace_hash, events)}


PLANTS = (
    (*STREAMS_GROUP_MUTANTS, *RARE_STREAMS_GROUP_MUTANTS)
    if os.environ.get("KAFKACOMPAT_SOAK")
    else STREAMS_GROUP_MUTANTS
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any, tell: Callable[[str, float], None]) -> None:
    seen_at = STREAMS_GROUP_MUTANTS_SEEN_AT.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = finding_seed(lambda seed: simulation_of(seed).run(), seen_at, SEEDS)
    faults.take()  # the bug may appear in a callback
    tell_of_another(tell, plant.__name__, seen_at, found)
    assert found is not None, f"{plant.__name__} survives {SEEDS} seeds"
