"""Syncs that fail on a simulated machine, once or for a while. The unsynced data are lost, as by a power loss."""

from __future__ import annotations

import posixpath
from functools import partial
from typing import Any, NamedTuple

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import directory_of
from kafkacompat.sim.machine import SimulatedMachine

SHARE = 0.25
"""Share of the seeds."""
METADATA_DIRECTORY = "/metadata"
HALTS_WITHIN_US = 2_000_000
"""Time limit for the halt after a failed sync, once the job that saw it has ended."""


class Planned(NamedTuple):
    """A look whether a process has halted."""

    machine: SimulatedMachine
    lives: int
    directory: str
    failed_us: int
    is_at_work: bool = False
    """The job was not over at the last look."""


class FailingSyncs:
    """Call `begin` once. It has a separate random stream, so that the other faults are the same as without it."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "failing syncs")

    def begin(self, first_us: int) -> None:
        if self._chance.happens(SHARE):
            self._env.scheduler.after(first_us, self._let_a_sync_fail)

    def _let_a_sync_fail(self, _: Any) -> None:
        """Let one of the next syncs of some broker fail."""
        if self._control.is_over:
            return
        machines = [each for each in self._control.machines.ordered if each.is_broker]
        machine = machines[self._chance.randrange(len(machines))]
        machine.disk.fails_sync = partial(self._fails, machine)
        mean_ms = 4 * self._env.options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform()))
        self._env.scheduler.after(delay_us, self._let_a_sync_fail)

    def _fails(self, machine: SimulatedMachine, path: str) -> bool:
        """Whether this sync fails. For a partition's file the effect is that of a power loss, so it must be allowed here."""
        life = machine.life
        if self._control.is_over or self._control.fragile is not None or life is None or not life.is_serving:
            return False
        if life.is_stopping or not self._control.survives_without(machine, None):
            return False
        machine.disk.fails_sync = lambda path: False
        self._control.tell(f"node {machine.id}: the sync of {path} fails")
        if self._chance.happens(0.4):
            lasts_us = self._chance.between(200, 2_000) * 1000
            until_us = self._env.scheduler.now_us + lasts_us
            machine.disk.fails_sync = partial(self._goes_on_failing, machine, directory_of(path), until_us)
        self._control.count += 1
        self._env.counters.failed_syncs += 1
        self._control.count_as_without_power(machine)
        now_us = self._env.scheduler.now_us
        self._plan(Planned(machine, machine.lives, posixpath.dirname(path), now_us))
        return True

    def _goes_on_failing(self, machine: SimulatedMachine, directory: str, until_us: int, path: str) -> bool:
        """Let each sync in the directory fail, while the controller does not count on the machine."""
        return (
            not self._control.is_over
            and self._control.fragile == machine.id
            and self._env.scheduler.now_us < until_us
            and directory_of(path) == directory
        )

    def _plan(self, planned: Planned) -> None:
        self._env.scheduler.after(HALTS_WITHIN_US, self._look_whether_halted, planned)

    def _look_whether_halted(self, planned: Planned) -> None:
        machine, directory = planned.machine, planned.directory
        life = machine.life
        if life is None or machine.lives != planned.lives or life.is_stopping:
            return
        now_us = self._env.scheduler.now_us
        is_at_work = life.pools.are_at_work_since(planned.failed_us) or any(
            pool.held_until_us > now_us for pool in life.pools.every()
        )
        if is_at_work or planned.is_at_work:
            self._plan(planned._replace(is_at_work=is_at_work))
            return
        kept = {log.directory for log in life.logs.logs.values()}
        is_kept = directory in kept or life.has_online(directory)
        if is_kept or directory.startswith(METADATA_DIRECTORY):
            raise Breach("no trust after a failed sync", f"node {machine.id} runs on, of {directory}")
        if life.has_lost_directories:
            return  # the restart registers a new incarnation, so the controller notices
        # The file belongs to a deleted topic.
        self._control.fragile = None
        self._control.oracles.power_is_harmless_again(machine.id)
