"""Clusters with a remote store: no oracle fails, everything occurs, and planted bugs are found.

A failure names its seed: `python -m kafkacompat.sim --tiers --seed N --trace`.
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
from kafkacompat.sim._tests.tier_mutants import TIER_MUTANTS, TIER_MUTANTS_SEEN_AT
from kafkacompat.sim.cluster_options import MIN_CLUSTER_EVENTS, MIN_CLUSTER_FAULTS, tier_shape
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import ClusterCounters, TierCounters

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("quiet_nodes")]

SEEDS = 60
"""Maximum number of seeds until everything has occurred, or a planted bug is found."""
RARE = frozenset({"late_copies", "orphans"})
"""A node has to die, or to lose the lead, at the right moment of a call."""


def simulation_of(seed: int) -> ClusterSimulation:
    return ClusterSimulation(seed, **tier_shape(seed))


def run(seed: int) -> tuple[ClusterCounters, TierCounters]:
    simulation = simulation_of(seed)
    assert simulation.store is not None
    return simulation.run(), simulation.store.counters


KIND = Kind(
    name="clusters with a remote store",
    option="--tiers ",
    run=run,
    fewest_events=MIN_CLUSTER_EVENTS,
    fewest_faults=MIN_CLUSTER_FAULTS,
    budget_s=1.0,
    at_least=4,
    first=4,
    rare=RARE,
)


@pytest.mark.parametrize("share", range(SHARES if os.environ.get("KAFKACOMPAT_SOAK") else 1))
def test_no_seed_fails(share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(KIND, share)
    tell("seeds of clusters with a remote store", ran.seeds)
    tell("CPU seconds that clusters with a remote store took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


def test_everything_occurs(tell: Callable[[str, float], None]) -> None:
    """Copies, deletions, followers that begin after a remote segment, each lie ...: a count of zero shows a blind spot."""
    ran = run_first(KIND, TierCounters(), SEEDS)
    tell("seeds of clusters with a remote store", ran.seeds)
    tell("CPU seconds that clusters with a remote store took", ran.cpu_s)
    tell("seeds until everything occurred to a remote store", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


def test_a_seed_is_one_run_in_this_process_and_in_another() -> None:
    """Neither hash seeds nor earlier runs may change the behaviour."""
    seed = 9
    simulation = simulation_of(seed)
    events = simulation.run().events
    assert trace_hashes(KIND, seed) == {hash_of(simulation.env.trace_hash, events)}


@pytest.mark.parametrize("plant", TIER_MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any, tell: Callable[[str, float], None]) -> None:
    seen_at = TIER_MUTANTS_SEEN_AT.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = finding_seed(lambda seed: simulation_of(seed).run(), seen_at, SEEDS)
    faults.take()  # the bug may appear in a callback
    tell_of_another(tell, plant.__name__, seen_at, found)
    assert found is not None, f"{plant.__name__} survives {SEEDS} seeds"
