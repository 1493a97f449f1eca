"""Processes of a simulated cluster that die in the middle of a step, and worker pools that are blocked, full, or run a job
with a planted bug.

A process dies between two changes of its files, or within a write. An unexpected exception of a job must be noticed:
reported, logged, or followed by the halt of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafkacompat.ports.files import CHANGES, SYNCS
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.disk import DiedWriting
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.faults.refusals import chain
from kafkacompat.sim.machine import Life, SimulatedMachine
from kafkacompat.sim.processes import ProcessEnded
from kafkacompat.sim.workers import Unforeseen

SHARE_OF_DEATHS = 0.4
"""Share of the seeds."""
FIRST_DEATH_US = 2_000_000
AFTER_AT_MOST = 12
"""Maximum number of file changes until the process dies."""
DEADLY = (CHANGES | SYNCS) - {"open"}


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
        if self._chance.happens(SHARE_OF_DEATHS):
            self._env.scheduler.after(FIRST_DEATH_US, self._strike)

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
        if not self._left or operation not in DEADLY or machine.id not in self._left:
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


SHARE_OF_HELD, SHARE_OF_UNFORESEEN = 0.3, 0.2
"""Share of the seeds."""
FIRST_US = 2_500_000
MAY_HALT = ("quorum sync", "metadata snapshots", "recovery", "coordinators' loading")
"""Pools in which an unexpected exception may halt the node: the quorum depends on them, or the state that is being loaded."""


class PoolFaults:
    """Call `begin` once, `end` for good, then `check`."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "pools")
        self._is_over = False
        self.count = 0
        self._unheard: dict[Unforeseen, Life] = {}

    def begin(self) -> None:
        held, unforeseen = self._chance.happens(SHARE_OF_HELD), self._chance.happens(SHARE_OF_UNFORESEEN)
        if held:
            self._env.scheduler.after(FIRST_US, self._hold)
        if unforeseen:
            self._env.scheduler.after(FIRST_US, self._let_fail)

    def end(self) -> None:
        self._is_over = True
        for life in self._lives():
            for pool in life.pools.every():
                pool.fails_next = None

    def _lives(self) -> Iterator[Life]:
        return (each.life for each in self._control.machines.ordered if each.life is not None)

    def _any(self) -> Life | None:
        lives = list(self._lives())
        return lives[self._chance.randrange(len(lives))] if lives else None

    def _again(self, call: Callable[[Any], None], times: int) -> None:
        mean_ms = times * self._env.options.fault_interval_ms
        self._env.scheduler.after(int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform())), call)

    def _hold(self, _: Any) -> None:
        """Block the threads of one pool, or of all."""
        if self._is_over:
            return
        life = self._any()
        if life is not None:
            pools = life.pools.every()
            if self._chance.happens(0.7):
                pools = [pools[self._chance.randrange(len(pools))]]
            lasts_us = self._chance.between(50, self._env.options.fault_ms) * 1000
            for pool in pools:
                pool.held_until_us = self._env.scheduler.now_us + lasts_us
            self._control.tell(f"node {life.id}: threads are stuck: {', '.join(each.duty for each in pools)}")
            self.count += 1
            self._env.counters.held_pools += 1
        self._again(self._hold, 2)

    def _let_fail(self, _: Any) -> None:
        """Let the next job of some pool fail."""
        if self._is_over:
            return
        life = self._any()
        if life is not None:
            pools = life.pools.every()
            pool = pools[self._chance.randrange(len(pools))]
            pool.fails_next = lambda: self._unforeseen(life, pool.duty)
        self._again(self._let_fail, 2)

    def _unforeseen(self, life: Life, duty: str) -> Unforeseen | None:
        if self._control.spares:
            return None
        self._control.tell(f"node {life.id}: a job ends as none should: {duty}")
        self.count += 1
        self._env.counters.unforeseen += 1
        error = Unforeseen(duty)
        self._unheard[error] = life
        return error

    def is_ours(self, error: BaseException) -> bool:
        """Whether the error was caused by the planted bug."""
        planted = [each for each in chain(error) if isinstance(each, Unforeseen)]
        for each in planted:
            self._unheard.pop(each, None)
        return bool(planted)

    def may_halt(self, error: BaseException) -> bool:
        return self.is_ours(error) and any(str(each) in MAY_HALT for each in chain(error))

    def check(self) -> None:
        """Check at the end that each planted bug was noticed. A process that ended earlier may not have run the job."""
        for error, life in self._unheard.items():
            if life.alive:
                raise Breach("nothing is swallowed", f"of node {life.id} nobody heard of a bug in: {error}")
