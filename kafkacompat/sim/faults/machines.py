"""Machines of a simulated cluster whose disks or links are slow for a while, clocks that are set, pauses, and network
partitions in both directions and in one, resets.

Wall clocks jump in both directions, by less than message.timestamp.after.max.ms. Monotonic clocks do not jump.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.machine import Life, SimulatedMachine


class Cuts:
    """Each method returns whether its fault has occurred. The faults heal after a while."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = control.chance

    def pause(self) -> bool:
        machine = self._control.leader() if self._chance.happens(0.5) else self._control.any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self._control.tell(f"node {life.id} is paused")
        life.pause()
        self._env.counters.pauses += 1
        self._control.later(self._resume, life)
        return True

    def pause_beyond_session(self) -> bool:
        """Pause a node until just after the controller has fenced it. It then resumes with the same registration."""
        life = self._control.any().life
        if life is None or life.is_paused:
            return False
        self._control.tell(f"node {life.id} is paused")
        life.pause()
        self._env.counters.pauses += 1
        session_ms = self._env.options.session_ms
        self._env.scheduler.after(
            self._chance.between(session_ms, session_ms + 300) * 1000, self._resume, life
        )
        return True

    def _resume(self, life: Life) -> None:
        if life.alive and life.is_paused:
            self._control.tell(f"node {life.id} goes on")
            life.resume()

    def _sever(self, links: list[tuple[int, int]]) -> bool:
        self._control.tell(f"cut: {links}")
        self._env.network.cut(links)
        self._env.network.severed.append(links)
        self._control.later(self._mend, links)
        return bool(links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        self._env.network.severed.remove(links)
        self._control.tell(f"mended: {links}")
        if not self._control.is_over:
            self._env.network.mend(links)

    def split(self) -> bool:
        ids = [each.id for each in self._control.machines.ordered]
        side = {each for each in ids if self._chance.happens(0.5)}
        self._env.counters.partitions += 1
        return self._sever([(a, b) for a in ids for b in ids if (a in side) != (b in side)])

    def _isolate_one(self, lonely: int) -> bool:
        others = [each.id for each in self._control.machines.ordered if each.id != lonely]
        self._env.counters.partitions += 1
        return self._sever([(lonely, other) for other in others] + [(other, lonely) for other in others])

    def isolate(self) -> bool:
        return self._isolate_one(self._control.any().id)

    def isolate_leader(self) -> bool:
        return self._isolate_one(self._control.leader().id)

    def cut_one_way(self) -> bool:
        lonely = self._control.any().id
        others = [each.id for each in self._control.machines.ordered if each.id != lonely]
        self._env.counters.one_way_partitions += 1
        if self._chance.happens(0.5):
            return self._sever([(lonely, other) for other in others])
        return self._sever([(other, lonely) for other in others])

    def cut_off(self, others: Sequence[int]) -> bool:
        """Cut all links to the nodes of another cluster, in both directions or in one."""
        ids = [each.id for each in self._control.machines.ordered]
        to, back = [(a, b) for a in ids for b in others], [(b, a) for a in ids for b in others]
        kind = self._chance.randrange(4)
        return self._sever((to, back, to + back, to + back)[kind])

    def reset_connections(self) -> bool:
        self._env.network.burst_loss = 0.1 + 0.5 * self._chance.uniform()
        self._control.later(self._end_burst, None)
        return True

    def _end_burst(self, _: Any) -> None:
        self._env.network.burst_loss = 0.0


SHARE_OF_SLOW, SHARE_OF_JUMPS, SHARE_OF_COLD = 0.3, 0.25, 0.3
"""Share of the seeds."""
FIRST_US = 2_500_000
JUMP_MAX_MS = 1_800_000


class MachineFaults:
    """Slow disks and links, cold disks, clocks that are set. Call `begin` once. `end` stops the faults, but leaves the clocks as
    they are."""

    def __init__(self, control: FaultControl) -> None:
        self._control = control
        self._env = control.env
        self._chance = Chance(control.env.seed, "slowness")
        self._is_over = False
        self.count = 0

    def begin(self) -> None:
        chance, scheduler = self._chance, self._env.scheduler
        slow, jumps, cold = (
            chance.happens(share) for share in (SHARE_OF_SLOW, SHARE_OF_JUMPS, SHARE_OF_COLD)
        )
        if slow:
            scheduler.after(FIRST_US, self._slow_down)
        if jumps:
            scheduler.after(FIRST_US, self._set_clock)
        if cold:
            share = 0.3 * chance.uniform()
            for machine in self._control.machines.ordered:
                machine.disk.is_cold = lambda: chance.happens(share)

    def end(self) -> None:
        self._is_over = True
        for machine in self._control.machines.ordered:
            machine.disk_factor, machine.link_us = 1, 0

    def _any(self) -> SimulatedMachine:
        return self._control.machines.ordered[self._chance.randrange(len(self._control.machines.ordered))]

    def _again(self, call: Callable[[Any], None], times: int) -> None:
        mean_ms = times * self._env.options.fault_interval_ms
        self._env.scheduler.after(int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform())), call)

    def _slow_down(self, _: Any) -> None:
        if self._is_over:
            return
        machine, chance = self._any(), self._chance
        if machine.disk_factor == 1 and not machine.link_us:
            if chance.happens(0.5):
                machine.disk_factor = chance.between(5, 60)
                self._control.tell(f"node {machine.id}: its disks are {machine.disk_factor} times as slow")
            else:
                machine.link_us = chance.between(20_000, 400_000)
                self._control.tell(f"node {machine.id}: its links are slow by {machine.link_us} us")
            self.count += 1
            self._env.counters.slow_machines += 1
            lasts_ms = chance.between(200, 2 * self._env.options.fault_ms)
            self._env.scheduler.after(lasts_ms * 1000, self._recover, machine)
        self._again(self._slow_down, 2)

    def _recover(self, machine: SimulatedMachine) -> None:
        machine.disk_factor, machine.link_us = 1, 0
        self._control.tell(f"node {machine.id} is as quick as the others")

    def _set_clock(self, _: Any) -> None:
        if self._is_over:
            return
        machine, chance = self._any(), self._chance
        at_most_ms = 3_000 if chance.happens(0.5) else JUMP_MAX_MS
        machine.wall_offset_ms = chance.between(-at_most_ms, at_most_ms)
        self._control.tell(f"node {machine.id}: its clock is set to be {machine.wall_offset_ms} ms ahead")
        self.count += 1
        self._env.counters.clock_jumps += 1
        self._again(self._set_clock, 2)
