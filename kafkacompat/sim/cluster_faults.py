"""The faults of a simulated cluster: kill -9 of any nodes, clean restarts, power losses, failed syncs, pauses, network
partitions in both directions and in one, and those in kafkacompat/sim/faults.

kill -9 may occur at any time, also on all nodes at once. Each fault heals after a while. `heal_all` ends all faults at once,
for the liveness phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.sim.committed_metadata import Key, partitions_of
from kafkacompat.sim.counters import StreamsGroupCounters
from kafkacompat.sim.faults.control import LOOK_AGAIN_US, FaultControl, proposals_of
from kafkacompat.sim.faults.creations import CreationFaults
from kafkacompat.sim.faults.disks import DiskFaults, FailingSyncs, LoadFaults
from kafkacompat.sim.faults.machines import Cuts, MachineFaults
from kafkacompat.sim.faults.processes import Deaths, PoolFaults
from kafkacompat.sim.machine import Machines, SimulatedMachine
from kafkacompat.sim.partition_oracles import PartitionOracles
from kafkacompat.sim.processes import Environment

FIRST_FAULT_US = 2_500_000
"""No faults before this time, so that the cluster can start."""
NEWCOMER_WITHIN_US, NEWCOMER_LOOK_US = 1_000_000, 3_000


class ClusterFaults:
    """Call `begin` once, when the machines are there."""

    def __init__(
        self,
        env: Environment,
        machines: Machines,
        oracles: PartitionOracles,
        streams: StreamsGroupCounters,
    ) -> None:
        self._env = env
        self._machines = machines
        self.control = control = FaultControl(env, machines, oracles)
        self._chance = control.chance
        self._cuts = Cuts(control)
        self._kinds: tuple[Callable[[], bool], ...] = (
            self._kill_one,
            self._kill_one,
            self._kill_leader,
            self._kill_last_in_sync,
            self._kill_last_in_sync,
            self._kill_controller,
            self._kill_many,
            self._stop_in_order,
            self._lose_power,
            self._lose_power,
            self._lose_power_of_second,
            self._lose_power_of_second,
            self._lose_power_of_newcomer,
            self._lose_power_of_newcomer,
            self._cuts.pause_beyond_session,
            self._cuts.pause,
            self._cuts.split,
            self._cuts.isolate,
            self._cuts.isolate_leader,
            self._cuts.cut_one_way,
            self._cuts.reset_connections,
        )
        self.pools = PoolFaults(control)
        self._deaths = Deaths(control)
        self._loads = LoadFaults(control)
        self._creations = CreationFaults(control, streams)
        self._others = (
            DiskFaults(control),
            MachineFaults(control),
            self.pools,
            self._deaths,
            self._loads,
            self._creations,
        )
        self._failing_syncs = FailingSyncs(control)

    def begin(self) -> None:
        self._env.scheduler.after(FIRST_FAULT_US, self._strike)
        for each in self._others:
            each.begin()
        self._failing_syncs.begin(FIRST_FAULT_US)

    # What machines meet.

    def before_operation(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        self._deaths.meet(machine, operation, path)
        self._creations.meet(machine, operation, path)

    def after_refusals(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        self._loads.meet(machine, operation, path)

    def may_halt(self, error: BaseException) -> bool:
        return self.pools.may_halt(error)

    def halted(self, machine: SimulatedMachine) -> None:
        self.control.halted(machine)

    def restart_later(self, machine: SimulatedMachine) -> None:
        self.control.restart_later(machine)

    # The run.

    def _strike(self, _: Any) -> None:
        if self.control.is_over:
            return
        if self.control.fragile is not None:
            self._env.scheduler.after(LOOK_AGAIN_US, self._strike)
            return
        if self._kinds[self._chance.randrange(len(self._kinds))]():
            self.control.count += 1
        mean_ms = self._env.options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform()))
        self._env.scheduler.after(delay_us, self._strike)

    def heal_all(self) -> None:
        self.control.is_over = True
        self.control.tell("all is healed")
        for each in self._others:
            each.end()
            self.control.count += each.count
        self._env.network.calm(3_000)
        for machine in self._machines.ordered:
            if machine.life is None:
                machine.start()
            elif machine.life.is_paused:
                machine.life.resume()

    # Ends of processes.

    def _kill(self, machine: SimulatedMachine) -> bool:
        if machine.life is None:
            return False
        self._env.counters.kills += 1
        machine.kill()
        self.control.restart_later(machine)
        return True

    def _kill_one(self) -> bool:
        return self._kill(self.control.any())

    def _kill_leader(self) -> bool:
        return self._kill(self.control.leader())

    def _kill_last_in_sync(self) -> bool:
        """Kill a leader that is alone in its ISR."""
        for _, partition in partitions_of(self._env.metadata.newest):
            if len(partition.isr) == 1 and self._kill(self._machines.by_id[partition.isr[0]]):
                return True
        return False

    def _kill_controller(self) -> bool:
        for machine in self._machines.ordered:
            if machine.life is not None and machine.life.metadata.is_active:
                return self._kill(machine)
        return False

    def _kill_many(self) -> bool:
        killed = [self._kill(each) for each in self._machines.ordered if self._chance.happens(0.6)]
        return any(killed)

    def _stop_in_order(self) -> bool:
        machine = self.control.any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self.control.tell(f"node {life.id} is told to stop")
        life.enter("stop", life.shut_down)
        return True

    # Power losses.

    def _lose_power(self) -> bool:
        return self._cut_power(self.control.any(), None)

    def _lose_power_of_second(self) -> bool:
        """Cut the power of a partition's only follower that is in sync."""
        image = self._env.metadata.newest
        for _, partition in partitions_of(image):
            seconds = [each for each in partition.isr if each != partition.leader]
            if len(seconds) == 1 and self._cut_power(self._machines.by_id[seconds[0]], None):
                return True
        return False

    def _lose_power_of_newcomer(self) -> bool:
        """Cut the power of a replica that is about to join an ISR, and restart it at once."""
        self._await_newcomer(self._env.scheduler.now_us + NEWCOMER_WITHIN_US)
        return True

    def _await_newcomer(self, until_us: int) -> None:
        scheduler = self._env.scheduler
        if self.control.is_over or scheduler.now_us > until_us:
            return
        if self.control.fragile is None:
            for machine in self._machines.ordered:
                for key, pending in proposals_of(machine.life):
                    added = [each for each in pending.isr if each not in _isr(self._env, key)]
                    if added and self._cut_power(self._machines.by_id[added[0]], key):
                        return
        scheduler.after(NEWCOMER_LOOK_US, self._await_newcomer, until_us)

    def _cut_power(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """Cut a machine's power if that is allowed. `joining` is a partition whose leader has asked to add the
        machine's replica. It does not prevent the fault."""
        if machine.life is None or not self.control.survives_without(machine, joining):
            return False
        self._env.counters.power_losses += 1
        machine.lose_power()
        if joining is None:
            self.control.restart_later(machine)
        else:
            delay_us = self._chance.between(10_000, 60_000)
            self._env.scheduler.after(delay_us, self.control.restart, (machine, machine.lives))
        self.control.count_as_without_power(machine)
        return True


def _isr(env: Environment, key: Key) -> tuple[int, ...]:
    partition = env.metadata.partition(key)
    return () if partition is None else partition.isr
