"""Processes of a simulated cluster that die in the middle of a step: between two changes of their files, or within a write."""

from __future__ import annotations

from typing import Any

from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import CHANGES, SYNCS
from kafkacompat.sim.files import DiedWriting
from kafkacompat.sim.machine import SimulatedMachine
from kafkacompat.sim.processes import ProcessEnded

SHARE = 0.4
"""Share of the seeds."""
FIRST_US = 2_000_000
AFTER_AT_MOST = 12
"""Maximum number of file changes until the process dies."""
STEPS = (CHANGES | SYNCS) - {"open"}


class Deaths:
    """Call `begin` once, `end` for good, and `meet` before each operation on a machine's disk."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "deaths")
        self._is_over = False
        self._left: dict[int, int] = {}
        """The number of changes that a machine's process still makes before it dies."""
        self.count = 0

    def begin(self) -> None:
        if self._chance.happens(SHARE):
            self._env.scheduler.after(FIRST_US, self._strike)

    def end(self) -> None:
        self._is_over = True
        self._left.clear()

    def _strike(self, _: Any) -> None:
        if self._is_over:
            return
        machines = self._control.machines.ordered
        machine = machines[self._chance.randrange(len(machines))]
        self._left[machine.id] = self._chance.between(0, AFTER_AT_MOST)
        mean_ms = 2 * self._env.options.fault_interval_ms
        self._env.scheduler.after(int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform())), self._strike)

    def meet(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        """Raise ProcessEnded if the process dies at this operation: before or in the middle of it."""
        if not self._left or operation not in STEPS or machine.id not in self._left:
            return
        if self._control.spares:
            return
        self._left[machine.id] -= 1
        if self._left[machine.id] >= 0:
            return
        del self._left[machine.id]
        self._control.tell(f"node {machine.id} dies at: {operation} {path}")
        self.count += 1
        self._env.counters.deaths_within += 1
        self._control.end_within(machine)
        if operation in ("write", "write_atomic") and self._chance.happens(0.7):
            raise DiedWriting(self._chance.uniform())
        raise ProcessEnded
