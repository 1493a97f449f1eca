"""Reads of coordinators' partitions that fail while they are loaded: a process without free descriptors, or an error of the
disk that does not repeat. No load ends because of them.

An error of the disk is met by fewer reads in a row than count as damage.
"""

from __future__ import annotations

import errno

from kafkacompat.coordinator.loading import READ_TRIES
from kafkacompat.net.workers import TERMS
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.machine import SimulatedMachine

SHARE = 0.3
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
        self.is_active = self._chance.happens(SHARE)

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
