"""Disks of a simulated cluster that refuse operations, syncs that fail, and reads that fail while a coordinator loads.

`DiskFaults`: one directory of a node at a time refuses, for a while, and is repaired. A process that has lost a directory
continues with the others until it is restarted, as an operator does after repairing the disk.
`FailingSyncs`: syncs fail once or for a while. The unsynced data are lost, as by a power loss.
`LoadFaults`: a process has no free descriptors, or an error of the disk does not repeat. No load ends because of them. An
error of the disk is met by fewer reads in a row than count as damage.
"""

from __future__ import annotations

import errno
import posixpath
from functools import partial
from typing import Any, NamedTuple

from kafkacompat.coordinator.loading import READ_TRIES
from kafkacompat.net.workers import TERMS
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import METADATA_DIRECTORY
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import Condition, directory_of
from kafkacompat.sim.machine import Life, SimulatedMachine

SHARE_OF_REFUSING = 0.3
"""Share of the seeds."""
SHARE_OF_FULL_QUORUMS = 0.06
"""Share of the seeds in which the metadata directories of all controllers are full at once, as equal disks with equal logs
are."""
CONDITIONS = tuple(each for each in Condition for _ in range(each.weight))
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
        if self._chance.happens(SHARE_OF_REFUSING):
            self._env.scheduler.after(FIRST_US, self._strike)
        if self._all_chance.happens(SHARE_OF_FULL_QUORUMS):
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
        kind = CONDITIONS[chance.randrange(len(CONDITIONS))]
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
        if not machine.refusals.conditions.pop(directory, Condition.CUTS_A_WRITE).is_once:
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


SHARE_OF_FAILING_SYNCS = 0.25
"""Share of the seeds."""
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
        if self._chance.happens(SHARE_OF_FAILING_SYNCS):
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
        directory = posixpath.dirname(path)
        self._control.count_as_without_power(machine, posixpath.basename(directory))
        now_us = self._env.scheduler.now_us
        self._plan(Planned(machine, machine.lives, directory, now_us))
        return True

    def _goes_on_failing(self, machine: SimulatedMachine, directory: str, until_us: int, path: str) -> bool:
        """Let each sync in the directory fail, while the controller does not count on the machine."""
        fails = (
            not self._control.is_over
            and self._control.fragile == machine.id
            and self._env.scheduler.now_us < until_us
            and directory_of(path) == directory
        )
        if fails:
            self._control.oracles.power_lost(machine.id, posixpath.basename(posixpath.dirname(path)))
        return fails

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


SHARE_OF_FAILING_LOADS = 0.3
"""Share of the seeds."""
SHARE_OF_READS = 0.5
IN_A_ROW_MAX = READ_TRIES - 1
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
LOADING = TERMS["loading"].duty
CODES = (*SHORTAGES, errno.EIO)


class LoadFaults:
    """Call `begin` once. `end` stops the faults."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "loads that cannot read")
        self.is_active = False
        self._in_a_row: dict[str, int] = {}
        """Reads of a file that have failed since one has succeeded."""
        self.count = 0

    def begin(self) -> None:
        self.is_active = self._chance.happens(SHARE_OF_FAILING_LOADS)

    def end(self) -> None:
        self.is_active = False

    def meet(self, machine: SimulatedMachine, operation: str, path: str) -> None:
        """Raise OSError if this read of a loading coordinator fails."""
        if not self.is_active or operation not in ("open", "read") or not path.endswith(".log"):
            return
        life = machine.life
        if life is None or not life.loads_log_in(path.rpartition("/")[0]):
            return
        if life.work.duty not in (None, LOADING):  # another's read of the log, such as the cleaner's
            return
        if self._in_a_row.get(path, 0) >= IN_A_ROW_MAX or not self._chance.happens(SHARE_OF_READS):
            self._in_a_row[path] = 0
            return
        self._in_a_row[path] = self._in_a_row.get(path, 0) + 1
        code = CODES[self._chance.randrange(len(CODES))] if operation == "read" else errno.EMFILE
        self._control.tell(f"node {machine.id}: {operation} {path} fails with {errno.errorcode[code]}")
        self._env.counters.failed_loads += 1
        raise OSError(code, "fails once", path)
