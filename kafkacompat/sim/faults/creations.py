"""What befalls a simulated cluster just while the internal topics of a streams application are created (KIP-1071).

A broker dies, or its directory is full, at one of the first operations on such a topic's log. When the topics are wanted, the
active controller is killed, paused, or slow.
"""

from __future__ import annotations

import posixpath
from typing import Any

from kafkacompat.ports.files import CHANGES, SYNCS
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import is_of_application
from kafkacompat.sim.counters import StreamsGroupCounters
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import Condition, directory_of
from kafkacompat.sim.machine import Life, SimulatedMachine
from kafkacompat.sim.processes import ProcessEnded

SHARE_OF_CREATIONS = 0.7
"""Share of the seeds with a streams group."""
FIRST_US, LOOK_AGAIN_US = 2_500_000, 20_000
STRUCK_LOGS, STRUCK_CONTROLLERS = 0.12, 0.3
"""The share of logs, and of the times at which topics are wanted."""
AFTER_AT_MOST = 6
"""Operations on the log."""


class CreationFaults:
    """Call `begin` once, `end` for good, and `meet` before each operation on a machine's disk."""

    def __init__(self, control: FaultControl, counters: StreamsGroupCounters) -> None:
        self._control = control
        self._counters = counters
        self._env = control.env
        self._chance = Chance(control.env.seed, "creations")
        self._is_over = True
        self._left: dict[tuple[int, str], int] = {}
        """The number of operations on a machine's log until it is struck. -1: it is not."""
        self._wanted = 0
        self.count = 0

    def begin(self) -> None:
        if self._env.options.streams_members and self._chance.happens(SHARE_OF_CREATIONS):
            self._is_over = False
            self._env.scheduler.after(FIRST_US, self._look)

    def end(self) -> None:
        self._is_over = True

    # Logs.

    def meet(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        """Raise ProcessEnded if the process dies at this operation."""
        if self._is_over or operation not in CHANGES | SYNCS:
            return
        log = next((each for each in path.split("/") if is_of_application(each)), None)
        if log is None or self._control.spares:
            return
        name = machine.id, log
        left = self._left.get(name)
        if left is None:
            left = self._chance.between(0, AFTER_AT_MOST) if self._chance.happens(STRUCK_LOGS) else -1
        else:
            left = max(-1, left - 1)
        self._left[name] = left
        if left == 0:
            self._strike(machine, operation, path)

    def _strike(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        self.count += 1
        self._counters.struck_creations += 1
        if self._chance.happens(0.5) and not machine.refusals.conditions:
            directory = directory_of(path)
            self._control.tell(f"node {machine.id}: {directory} is full at: {operation} {path}")
            machine.refusals.conditions[directory] = Condition.FULL
            lasts_ms = self._chance.between(20, 2 * self._env.options.fault_ms)
            self._env.scheduler.after(lasts_ms * 1000, self._mend, (machine, directory))
            return
        self._control.tell(f"node {machine.id} dies at: {operation} {posixpath.basename(path)}")
        self._control.end_within(machine)
        raise ProcessEnded

    def _mend(self, of: tuple[SimulatedMachine, str]) -> None:
        machine, directory = of
        if machine.refusals.conditions.pop(directory, None) is not None:
            self._control.tell(f"node {machine.id}: {directory} is well again")

    # Controllers.

    def _look(self, _: Any) -> None:
        if self._is_over:
            return
        wanted, self._wanted = self._env.topics_wanted > self._wanted, self._env.topics_wanted
        if wanted and not self._control.spares and self._chance.happens(STRUCK_CONTROLLERS):
            for machine in self._control.machines.ordered:
                life = machine.life
                if life is not None and not life.is_paused and life.metadata.is_active:
                    self._strike_controller(machine, life)
                    break
        self._env.scheduler.after(LOOK_AGAIN_US, self._look)

    def _strike_controller(self, machine: SimulatedMachine, life: Life) -> None:
        self.count += 1
        self._counters.struck_creations += 1
        kind = self._chance.uniform()
        lasts_us = 1000 * self._chance.between(100, 2 * self._env.options.fault_ms)
        if kind < 0.3:
            self._control.tell(f"node {machine.id}, the controller, is killed when topics are wanted")
            machine.kill()
            self._control.restart_later(machine)
        elif kind < 0.6:
            self._control.tell(f"node {machine.id}, the controller, is paused when topics are wanted")
            life.pause()
            self._env.scheduler.after(lasts_us, self._go_on, life)
        else:
            machine.link_us = self._chance.between(20_000, 600_000)
            self._control.tell(f"node {machine.id}, the controller: links are slow by {machine.link_us} us")
            self._env.scheduler.after(lasts_us, self._speed_up, machine)

    def _go_on(self, life: Life) -> None:
        if life.alive and life.is_paused:
            self._control.tell(f"node {life.id} goes on")
            life.resume()

    def _speed_up(self, machine: SimulatedMachine) -> None:
        machine.link_us = 0
