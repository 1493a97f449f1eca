"""Clusters of a special shape, with a kind of group, a remote store or mirrors: no oracle fails, everything occurs, and
planted bugs are found.

A failure names its seed: `python -m kafkacompat.sim OPTION --seed N --trace`, with the option of the shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.consumer_group_mutants import (
    CONSUMER_GROUP_MUTANTS,
    CONSUMER_GROUP_MUTANTS_SEEN_AT,
    RARE_CONSUMER_GROUP_MUTANTS,
)
from kafkacompat.sim._tests.mirror_mutants import MIRROR_MUTANTS, MIRROR_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.seeds import (
    SHARES,
    Kind,
    SeenAt,
    finding_seed,
    hash_of,
    listed,
    run_first,
    run_share,
    tell_of_another,
    trace_hashes,
)
from kafkacompat.sim._tests.share_group_mutants import SHARE_GROUP_MUTANTS, SHARE_GROUP_MUTANTS_SEEN_AT
from kafkacompat.sim._tests.streams_group_mutants import (
    RARE_STREAMS_GROUP_MUTANTS,
    STREAMS_GROUP_MUTANTS,
    STREAMS_GROUP_MUTANTS_SEEN_AT,
)
from kafkacompat.sim._tests.tier_mutants import TIER_MUTANTS, TIER_MUTANTS_SEEN_AT
from kafkacompat.sim.cluster_options import (
    MIN_CLUSTER_EVENTS,
    MIN_CLUSTER_FAULTS,
    consumer_group_shape,
    share_group_shape,
    streams_group_shape,
    tier_shape,
)
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import (
    ClusterCounters,
    ConsumerGroupCounters,
    MirrorCounters,
    ShareGroupCounters,
    StreamsGroupCounters,
    TierCounters,
)
from kafkacompat.sim.mirrors import MirrorSimulation
from kafkacompat.sim.streams_groups import ACTIVE, STANDBY

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("quiet_nodes")]

IS_SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))


def tier_counters(simulation: ClusterSimulation) -> TierCounters:
    assert simulation.store is not None
    return simulation.store.counters


def mirror_counters(simulation: ClusterSimulation) -> MirrorCounters:
    assert simulation.oracles.mirrors is not None
    return simulation.oracles.mirrors.counters


@dataclass(frozen=True)
class Shape:
    """What a special shape of clusters adds to a plain one."""

    name: str
    option: str
    """The option of kafkacompat.sim that selects it."""
    options: Callable[[int], dict[str, Any]]
    counters: type
    counted: Callable[[ClusterSimulation], Any]
    budget_s: float
    at_least: int
    first: int
    plants: tuple[Plant, ...]
    seen_at: Mapping[str, SeenAt]
    rare_plants: tuple[Plant, ...] = ()
    """Bugs that only many seeds find: those of `make soak`."""
    rare: frozenset[str] = frozenset()
    seeds: int = 100
    """Maximum number of seeds until everything has occurred, or a planted bug is found."""
    shares: int = SHARES
    repeated_seed: int = 0
    made: Callable[..., ClusterSimulation] = ClusterSimulation

    def simulation_of(self, seed: int) -> ClusterSimulation:
        return self.made(seed, **self.options(seed))

    def run(self, seed: int) -> tuple[ClusterCounters, Any]:
        simulation = self.simulation_of(seed)
        return simulation.run(), self.counted(simulation)

    @property
    def kind(self) -> Kind:
        return Kind(
            name=f"clusters with {self.name}",
            option=f"{self.option} ",
            run=self.run,
            fewest_events=MIN_CLUSTER_EVENTS,
            fewest_faults=MIN_CLUSTER_FAULTS,
            budget_s=self.budget_s,
            at_least=self.at_least,
            first=self.first,
            rare=self.rare,
        )


CONSUMER_GROUPS = Shape(
    name="consumer groups",
    option="--consumer-groups",
    options=consumer_group_shape,
    counters=ConsumerGroupCounters,
    counted=lambda simulation: simulation.consumer_groups.counters,
    budget_s=10.0,
    at_least=16,
    first=8,
    plants=CONSUMER_GROUP_MUTANTS,
    rare_plants=RARE_CONSUMER_GROUP_MUTANTS,
    seen_at=CONSUMER_GROUP_MUTANTS_SEEN_AT,
    # No assignor looks at racks.
    rare=frozenset({"rack_id of ConsumerGroupHeartbeatRequest"}),
)
SHARE_GROUPS = Shape(
    name="share groups",
    option="--share-groups",
    options=share_group_shape,
    counters=ShareGroupCounters,
    counted=lambda simulation: simulation.share_groups.counters,
    budget_s=2.0,
    at_least=8,
    first=8,
    plants=SHARE_GROUP_MUTANTS,
    seen_at=SHARE_GROUP_MUTANTS_SEEN_AT,
    # A leader has to end between a dead letter and the state that says so, and the next one must deliver the record.
    # A hundred seeds may pass before that. There are no transactions.
    rare=frozenset(
        {
            "letters_in_vain",
            "the sweep to abort transactions",
            "the sweep to expire transactions",
            "rack_id of ShareGroupHeartbeatRequest",
        }
    ),
)
STREAMS_GROUPS = Shape(
    name="streams groups",
    option="--streams-groups",
    options=streams_group_shape,
    counters=StreamsGroupCounters,
    counted=lambda simulation: simulation.streams_groups.counters,
    budget_s=1.0,
    at_least=8,
    first=4,
    plants=STREAMS_GROUP_MUTANTS,
    rare_plants=RARE_STREAMS_GROUP_MUTANTS,
    seen_at=STREAMS_GROUP_MUTANTS_SEEN_AT,
    # Each needs options that few seeds have, or a fault at the right moment. Dozens of seeds may pass before that. No member has
    # a rack or tags.
    rare=frozenset(
        {
            "returned",
            "instances_fenced",
            "tasks_refused",
            "shut_down",
            "shutdown_application of StreamsGroupHeartbeatRequest",
            "rack_id of StreamsGroupHeartbeatRequest",
            "client_tags of StreamsGroupHeartbeatRequest",
        }
    ),
)
REMOTE_STORE = Shape(
    name="a remote store",
    option="--tiers",
    options=tier_shape,
    counters=TierCounters,
    counted=tier_counters,
    budget_s=1.0,
    at_least=4,
    first=4,
    plants=TIER_MUTANTS,
    seen_at=TIER_MUTANTS_SEEN_AT,
    # A node has to die, or to lose the lead, at the right moment of a call.
    rare=frozenset({"late_copies", "orphans"}),
    seeds=60,
    shares=SHARES if IS_SOAK else 1,
    repeated_seed=9,
)
MIRRORS = Shape(
    name="mirrors",
    option="--mirrors",
    options=lambda seed: {},
    counters=MirrorCounters,
    counted=mirror_counters,
    budget_s=1.0,
    at_least=3,
    first=3,
    plants=MIRROR_MUTANTS,
    seen_at=MIRROR_MUTANTS_SEEN_AT,
    seeds=40,
    shares=SHARES if IS_SOAK else 1,
    # A topic has to grow, and to be stopped and turned back before the mirror knows.
    rare=frozenset({"turns_refused"}),
    made=MirrorSimulation,
)
SHAPES = (CONSUMER_GROUPS, SHARE_GROUPS, STREAMS_GROUPS, REMOTE_STORE, MIRRORS)

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.option.strip("-"))


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        pytest.param(shape, share, id=f"{shape.option.strip('-')}-{share}")
        for shape in SHAPES
        for share in range(shape.shares)
    ],
)
def test_no_seed_fails(shape: Shape, share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(shape.kind, share)
    tell(f"seeds of {shape.kind.name}", ran.seeds)
    tell(f"CPU seconds that {shape.kind.name} took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


@each_shape
def test_everything_occurs(shape: Shape, tell: Callable[[str, float], None]) -> None:
    """A count of zero (of revocations, takeovers, refused commits, upgrades, late copies ...) shows a blind spot."""
    ran = run_first(shape.kind, shape.counters(), shape.seeds)
    tell(f"seeds of {shape.kind.name}", ran.seeds)
    tell(f"CPU seconds that {shape.kind.name} took", ran.cpu_s)
    tell(f"seeds until everything occurred to {shape.name}", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


@each_shape
def test_a_seed_is_one_run_in_this_process_and_in_another(shape: Shape) -> None:
    """Neither hash seeds nor earlier runs may change the behaviour."""
    simulation = shape.simulation_of(shape.repeated_seed)
    events = simulation.run().events
    assert trace_hashes(shape.kind, shape.repeated_seed) == {hash_of(simulation.env.trace_hash, events)}


@pytest.mark.parametrize(
    ("shape", "plant"),
    [
        pytest.param(shape, plant, id=plant.__name__)
        for shape in SHAPES
        for plant in (*shape.plants, *(shape.rare_plants if IS_SOAK else ()))
    ],
)
def test_a_planted_bug_is_found(
    shape: Shape, plant: Plant, faults: Any, tell: Callable[[str, float], None]
) -> None:
    seen_at = shape.seen_at.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = finding_seed(lambda seed: shape.simulation_of(seed).run(), seen_at, shape.seeds)
    faults.take()  # the bug may appear in a callback
    tell_of_another(tell, plant.__name__, seen_at, found)
    assert found is not None, f"{plant.__name__} survives {shape.seeds} seeds"


def test_a_task_runs_in_a_role_after_another_is_given_up() -> None:
    """Until then the coordinator may take it back at once, because the member says that it does not run it."""
    member = STREAMS_GROUPS.simulation_of(0).streams_groups.application.members[0]
    standby, active = (STANDBY, "1", 2), (ACTIVE, "1", 2)
    member.owned, member._to_revoke = {standby, active}, {standby}
    assert member.alone(member.owned) == set()
    assert not member.heartbeat_request().active_tasks
    member.owned, member._to_revoke = {active}, set()
    assert member.alone(member.owned) == {active[1:]}
