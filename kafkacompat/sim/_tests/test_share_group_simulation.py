"""Clusters with a share group: no oracle fails, everything occurs, and planted bugs are found.

A failure names its seed: `python -m kafkacompat.sim --share-groups --seed N --trace`.
"""

from __future__ import annotations

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
from kafkacompat.sim._tests.share_group_mutants import (
    SHARE_GROUP_MUTANTS,
    SHARE_GROUP_MUTANTS_SEEN_AT,
)
from kafkacompat.sim.cluster_options import MIN_CLUSTER_EVENTS, MIN_CLUSTER_FAULTS, share_group_shape
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import ClusterCounters, ShareGroupCounters

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("quiet_nodes")]

SEEDS = 100
"""Maximum number of seeds until everything has occurred, or a planted bug is found."""
RARE = frozenset({"letters_in_vain"})
"""A leader has to end between a dead letter and the state that says so, and the next one must deliver the record. A hundred
seeds may pass before that."""


def simulation_of(seed: int) -> ClusterSimulation:
    return ClusterSimulation(seed, **share_group_shape(seed))


def run(seed: int) -> tuple[ClusterCounters, ShareGroupCounters]:
    simulation = simulation_of(seed)
    return simulation.run(), simulation.share_groups.counters


KIND = Kind(
    name="clusters with share groups",
    option="--share-groups ",
    run=run,
    fewest_events=MIN_CLUSTER_EVENTS,
    fewest_faults=MIN_CLUSTER_FAULTS,
    budget_s=2.0,
    at_least=8,
    first=8,
    rare=RARE,
)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_fails(share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(KIND, share)
    tell("seeds of clusters with share groups", ran.seeds)
    tell("CPU seconds that clusters with share groups took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


def test_everything_occurs(tell: Callable[[str, float], None]) -> None:
    """Deliveries, ended locks, takeovers, refused acknowledgements ...: a count of zero shows a blind
    spot."""
    ran = run_first(KIND, ShareGroupCounters(), SEEDS)
    tell("seeds of clusters with share groups", ran.seeds)
    tell("CPU seconds that clusters with share groups took", ran.cpu_s)
    tell("seeds until everything occurred to share groups", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


def test_a_seed_is_one_run_in_this_process_and_in_another() -> None:
    """Neither hash seeds nor earlier runs may change the behaviour."""
    simulation = simulation_of(0)
    events = simulation.run().events
    assert trace_hashes(KIND, 0) == {hash_of(simulation.env.trace_hash, events)}


@pytest.mark.parametrize("plant", SHARE_GROUP_MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any, tell: Callable[[str, float], None]) -> None:
    seen_at = SHARE_GROUP_MUTANTS_SEEN_AT.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = finding_seed(lambda seed: simulation_of(seed).run(), seen_at, SEEDS)
    faults.take()  # the bug may appear in a callback
    tell_of_another(tell, plant.__name__, seen_at, found)
    assert found is not None, f"{plant.__name__} survives {SEEDS} seeds"
