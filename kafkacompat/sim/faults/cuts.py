"""Faults of the network and the processors of a simulated cluster: pauses, partitions in both directions and in one, resets."""

from __future__ import annotations

from typing import Any

from kafkacompat.sim.faults.control import FaultControl
from kafkacompat.sim.machine import Life


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

    def reset_connections(self) -> bool:
        self._env.network.burst_loss = 0.1 + 0.5 * self._chance.uniform()
        self._control.later(self._end_burst, None)
        return True

    def _end_burst(self, _: Any) -> None:
        self._env.network.burst_loss = 0.0
