"""The metadata directories of all voters are full at once, as equal disks with equal logs are. Nothing halts, and the
cluster comes back by itself when there is room."""

from __future__ import annotations

import pytest

from kafkacompat.controller.records import MetadataRecord
from kafkacompat.sim.cluster_options import METADATA_DIRECTORY
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.faults.refusals import Condition
from kafkacompat.sim.machine import Life
from kafkacompat.wire.messages.no_op_record import NoOpRecord

STARTED_US = 4_000_000
LONG_US = 30_000_000
"""Longer than every election timeout and session."""
BACK_WITHIN_US = 10_000_000


def without_clients() -> ClusterSimulation:
    """Three controllers with brokers, and no fault."""
    simulation = ClusterSimulation(
        0, controllers=(1, 2, 3), brokers=(1, 2, 3), no_op_ms=200, changes_voters=False, loss=0.0
    )
    for machine in simulation.machines.ordered:
        machine.start()
    simulation.run_until(500_000)
    simulation.faults.heal_all()
    simulation.run_until(STARTED_US)
    return simulation


def advance(simulation: ClusterSimulation, for_us: int) -> None:
    simulation.run_until(simulation.env.scheduler.now_us + for_us)


def fill(simulation: ClusterSimulation) -> None:
    for machine in simulation.machines.ordered:
        machine.refusals.conditions[METADATA_DIRECTORY] = Condition.FULL


def make_room(simulation: ClusterSimulation) -> None:
    for machine in simulation.machines.ordered:
        machine.refusals.conditions.clear()


def lives(simulation: ClusterSimulation) -> list[Life]:
    found = [machine.life for machine in simulation.machines.ordered if machine.life is not None]
    assert len(found) == 3, "a node has halted"
    return found


def active(simulation: ClusterSimulation) -> list[Life]:
    return [life for life in lives(simulation) if life.metadata.is_active]


def committed(simulation: ClusterSimulation) -> int:
    return min(life.metadata.image.offset for life in lives(simulation))


def test_an_idle_quorum_keeps_its_leader_and_its_log_grows_again_with_room() -> None:
    simulation = without_clients()
    (leader,) = active(simulation)
    epoch = leader.driver.epoch
    fill(simulation)
    end = leader.driver.next_offset
    advance(simulation, LONG_US)
    assert active(simulation) == [leader]
    assert (leader.driver.epoch, leader.driver.next_offset) == (epoch, end)
    assert not any(broker.fenced for broker in leader.metadata.image.brokers.values())
    make_room(simulation)
    advance(simulation, 2 * LONG_US)
    assert committed(simulation) > end
    assert leader.driver.epoch == epoch


@pytest.mark.parametrize("also_kills", [False, True])
def test_a_quorum_that_lost_its_leader_to_full_disks_has_one_again_with_room(also_kills: bool) -> None:
    simulation = without_clients()
    (leader,) = active(simulation)
    fill(simulation)
    leader.enter("change", lambda: _propose(leader))
    advance(simulation, LONG_US)
    assert not active(simulation)
    before = committed(simulation)
    if also_kills:
        for life in lives(simulation)[:2]:
            life.machine.kill()
            life.machine.start()
        advance(simulation, LONG_US)
    make_room(simulation)
    for machine in simulation.machines.ordered:
        if machine.life is None:  # without room a process may not start
            machine.start()
    advance(simulation, BACK_WITHIN_US)
    assert len(active(simulation)) == 1
    assert committed(simulation) > before


def _propose(life: Life) -> None:
    for _ in life.metadata.append_own([MetadataRecord(NoOpRecord(), 0)]):
        pass
