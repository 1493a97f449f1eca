"""Disks of a simulated cluster that refuse operations: one directory of a node at a time, for a while, and their
repair.

A process that has lost a directory continues with the others until it is restarted, as an operator does after
repairing the disk.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import METADATA_DIRECTORY
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import ONCE, Condition
from kafkacompat.sim.machine import Life, SimulatedMachine

SHARE = 0.3
"""Share of the seeds."""
SHARE_OF_ALL = 0.06
"""Share of the seeds in which the metadata directories of all controllers are full at once, as equal disks with equal logs
are."""
KINDS = (
    Condition.FULL,
    Condition.FULL,
    Condition.READ_ONLY,
    Condition.BROKEN,
    Condition.FAILS_A_WRITE,
    Condition.CUTS_A_WRITE,
)
FIRST_US = 2_500_000
LOOK_AFTER_US = 300_000
GIVEN_UP_WITHIN_US = 1_000_000


class DiskFaults:
    """Call `begin` once. `end` repairs all disks for good."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "disks that refuse")
        self._all_chance = Chance(control.env.seed, "all disks are full")
        self._is_over = False
        self.count = 0

    def begin(self) -> None:
        if self._chance.happens(SHARE):
            self._env.scheduler.after(FIRST_US, self._strike)
        if self._all_chance.happens(SHARE_OF_ALL):
            at_ms = self._all_chance.between(0, self._env.options.faulty_ms // 2)
            self._env.scheduler.after(FIRST_US + at_ms * 1000, self._fill_all)
        self._env.scheduler.after(FIRST_US, self._look_after)

    def end(self) -> None:
        self._is_over = True
        for machine in self._control.machines.ordered:
            machine.refusals.conditions.clear()

    def _strike(self, _: Any) -> None:
        if self._is_over:
            return
        chance = self._chance
        machine = self._control.machines.ordered[chance.randrange(len(self._control.machines.ordered))]
        directory = machine.directories[chance.randrange(len(machine.directories))]
        kind = KINDS[chance.randrange(len(KINDS))]
        if not machine.refusals.conditions and not self._control.spares:
            self._control.tell(f"node {machine.id}: {directory} is {kind.value}")
            machine.refusals.conditions[directory] = kind
            self.count += 1
            self._env.counters.refusing_disks += 1
        lasts_ms = chance.between(20, 2 * self._env.options.fault_ms)
        self._env.scheduler.after(lasts_ms * 1000, self._mend, (machine, directory))
        mean_ms = 2 * self._env.options.fault_interval_ms
        self._env.scheduler.after(int(mean_ms * 1000 * (0.2 + 1.6 * chance.uniform())), self._strike)

    def _fill_all(self, _: Any) -> None:
        controllers = [machine for machine in self._control.machines.ordered if machine.is_controller]
        are_well = not any(machine.refusals.conditions for machine in controllers)
        if self._is_over or not are_well or self._control.spares:
            return
        self._control.tell(f"{METADATA_DIRECTORY} is full on all controllers")
        lasts_ms = self._all_chance.between(500, 2 * self._env.options.fault_ms)
        for machine in controllers:
            machine.refusals.conditions[METADATA_DIRECTORY] = Condition.FULL
            self._env.scheduler.after(lasts_ms * 1000, self._mend, (machine, METADATA_DIRECTORY))
        self.count += 1
        self._env.counters.full_quorums += 1

    def _mend(self, of: tuple[SimulatedMachine, str]) -> None:
        machine, directory = of
        if machine.refusals.conditions.pop(directory, Condition.CUTS_A_WRITE) not in ONCE:
            self._control.tell(f"node {machine.id}: {directory} is well again")

    def _look_after(self, _: Any) -> None:
        """Restart nodes that run without a directory although its disk is repaired."""
        for machine in self._control.machines.ordered:
            life = machine.life
            if life is not None and not life.is_paused and not life.is_stopping:
                self._check_given_up(machine, life)
            is_well = not machine.refusals.conditions
            if life is None or life.is_paused or life.is_stopping or not is_well:
                continue
            if self._control.spares_others_than(machine.id):
                continue
            if life.has_lost_directories:
                self._env.counters.lost_directories += 1
                self._control.tell(f"node {machine.id} is started anew for its directories")
                if self._chance.happens(0.5):
                    life.enter("stop", life.shut_down)
                else:
                    machine.kill()
                    self._control.restart_later(machine)
        self._env.scheduler.after(LOOK_AFTER_US, self._look_after)

    def _check_given_up(self, machine: SimulatedMachine, life: Life) -> None:
        """Check that a log with a refused append, and its directory, are no longer served."""
        before_us = self._env.scheduler.now_us - GIVEN_UP_WITHIN_US
        for told in machine.refusals.told:
            is_known = told.at_us < before_us and not life.pools.are_at_work_since(told.at_us)
            if told.log is not None and is_known and life.serves_log_in(told.log):
                raise Breach("no trust after a failed write", f"node {machine.id} serves {told.log} on")
