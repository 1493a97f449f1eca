"""Whole clusters with many seeds: no oracle fails, every danger occurs, and planted bugs are found.

CPU time decides how many seeds run (`seeds.py`), with KAFKACOMPAT_SOAK sixty times as many. A failure names its seed:
`python -m kafkacompat.sim --cluster --seed N --trace`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.sim._tests.cluster_mutants import MUTANTS, SEEN_AT, Plant
from kafkacompat.sim._tests.disk_mutants import DISK_MUTANTS, DISK_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.fault_mutants import FAULT_MUTANTS, FAULT_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.group_mutants import GROUP_MUTANTS, GROUP_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.keeping_mutants import KEEPING_MUTANTS, KEEPING_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.life_mutants import LIFE_MUTANTS, LIFE_MUTANTS_SEEN_AT, LIFE_MUTANTS_SHAPES
from kafkacompat.sim._tests.rights_mutants import RIGHTS_MUTANTS, RIGHTS_MUTANTS_SEEN_AT
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
from kafkacompat.sim._tests.transaction_mutants import TRANSACTION_MUTANTS, TRANSACTION_MUTANTS_SEEN_AT
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import (
    MIN_CLUSTER_EVENTS,
    MIN_CLUSTER_FAULTS,
    ClusterOptions,
    draw_cluster_options,
)
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.faults.disks import SHARE_OF_FAILING_LOADS, SHARE_OF_REFUSING
from kafkacompat.sim.faults.machines import SHARE_OF_JUMPS, SHARE_OF_SLOW

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("quiet_nodes")]

SEEDS = 200
"""Maximum number of seeds until every danger has occurred, or a planted bug is found."""


def run(seed: int) -> tuple[ClusterCounters, ClusterCounters]:
    counters = ClusterSimulation(seed).run()
    return counters, counters


KIND = Kind(
    name="clusters",
    option="--cluster ",
    run=run,
    fewest_events=MIN_CLUSTER_EVENTS,
    fewest_faults=MIN_CLUSTER_FAULTS,
    budget_s=90.0,
    at_least=64,
    first=16,
    # Clusters with share groups have them.
    rare=frozenset({"prune the share coordinator's partitions", "snapshot cold share-partitions"}),
)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_fails(share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(KIND, share)
    tell("seeds of clusters", ran.seeds)
    tell("CPU seconds that clusters took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


def test_every_danger_occurs(tell: Callable[[str, float], None]) -> None:
    """Elections, ISR changes, truncations, fenced brokers, completed moves, power losses ...: a count of zero shows a
    blind spot."""
    ran = run_first(KIND, ClusterCounters(), SEEDS)
    tell("seeds of clusters", ran.seeds)
    tell("CPU seconds that clusters took", ran.cpu_s)
    tell("seeds until clusters met every danger", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


@pytest.mark.parametrize("seed", [5, 13, 18])
def test_a_seed_is_one_run_in_this_process_and_in_others(seed: int) -> None:
    """Neither hash seeds nor earlier runs may change the behaviour. In seed 18 the order of one transaction's markers matters.
    In seed 13 clients authenticate themselves."""
    simulation = ClusterSimulation(seed)
    events = simulation.run().events
    assert trace_hashes(KIND, seed, 2) == {hash_of(simulation.env.trace_hash, events)}


EVERY_MUTANT = (
    *MUTANTS,
    *LIFE_MUTANTS,
    *GROUP_MUTANTS,
    *DISK_MUTANTS,
    *FAULT_MUTANTS,
    *TRANSACTION_MUTANTS,
    *KEEPING_MUTANTS,
    *RIGHTS_MUTANTS,
)
EVERY_SEEN_AT = (
    SEEN_AT
    | LIFE_MUTANTS_SEEN_AT
    | GROUP_MUTANTS_SEEN_AT
    | DISK_MUTANTS_SEEN_AT
    | FAULT_MUTANTS_SEEN_AT
    | TRANSACTION_MUTANTS_SEEN_AT
    | KEEPING_MUTANTS_SEEN_AT
    | RIGHTS_MUTANTS_SEEN_AT
)


def first_draw(purpose: str, share: float) -> Callable[[int], bool]:
    """Whether a fault occurs in a seed, which is the first draw of its random stream."""
    return lambda seed: Chance(seed, purpose).happens(share)


def clock_jumps(seed: int) -> bool:
    chance = Chance(seed, "slowness")
    chance.happens(SHARE_OF_SLOW)
    return chance.happens(SHARE_OF_JUMPS)


def with_options(needs: Callable[[ClusterOptions], object]) -> Callable[[int], bool]:
    return lambda seed: bool(needs(draw_cluster_options(seed)))


MAY_FIND: dict[str, Callable[[int], bool]] = {
    **dict.fromkeys(RIGHTS_MUTANTS_SEEN_AT, with_options(lambda options: options.secured_clients)),
    **dict.fromkeys(GROUP_MUTANTS_SEEN_AT, with_options(lambda options: options.members)),
    **dict.fromkeys(
        TRANSACTION_MUTANTS_SEEN_AT, with_options(lambda options: options.transactional_producers)
    ),
    **dict.fromkeys(KEEPING_MUTANTS_SEEN_AT, with_options(lambda options: options.segment_bytes)),
    "every_topic_elects_unclean_leaders": lambda seed: True,
    "an_unclean_leader_is_elected_before_those_in_sync": with_options(lambda options: options.unclean),
    **dict.fromkeys(DISK_MUTANTS_SEEN_AT, first_draw("disks that refuse", SHARE_OF_REFUSING)),
    "heartbeats_go_by_the_wall_clock": clock_jumps,
    "a_load_ends_at_the_first_read_that_fails": first_draw("loads that cannot read", SHARE_OF_FAILING_LOADS),
    "logs_keep_the_settings_of_their_start": with_options(lambda options: options.change_ms),
    "added_partitions_take_the_place_of_others": with_options(lambda options: options.change_ms),
    "eligible_replicas_outlive_the_feature": with_options(lambda options: options.change_ms),
    "logs_belong_to_names": with_options(lambda options: options.remake_ms),
}
"""The seeds in which a bug can show itself. A bug that is found by another seed than before costs CPU time in each run, until
its table is changed; other changes of the broker make that happen often."""


@pytest.mark.parametrize("plant", EVERY_MUTANT, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any, tell: Callable[[str, float], None]) -> None:
    shape = LIFE_MUTANTS_SHAPES.get(plant.__name__, {})
    seen_at = EVERY_SEEN_AT.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = finding_seed(
            lambda seed: ClusterSimulation(seed, **shape).run(),
            seen_at,
            SEEDS,
            MAY_FIND.get(plant.__name__, lambda seed: True),
        )
    faults.take()  # the bug may appear in a callback
    tell_of_another(tell, plant.__name__, seen_at, found)
    assert found is not None, f"{plant.__name__} survives {SEEDS} seeds"


def test_the_command_shows_one_failure_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkacompat.sim.__main__ import main
    from kafkacompat.sim._tests.cluster_mutants import acknowledged_at_the_append

    assert main(["--cluster", "--seed", "5"]) == 0
    assert "1 seeds, 0 failed" in capsys.readouterr().out
    acknowledged_at_the_append(monkeypatch)
    assert main(["--cluster", "--seed", "0", "--trace"]) == 1
    shown = capsys.readouterr().out
    assert "seed 0: Breach: acknowledged is committed" in shown
    assert "leads, log 0.." in shown
