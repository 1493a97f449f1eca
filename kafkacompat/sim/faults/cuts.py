"""Faults of the network and the processors of a simulated cluster: pauses, partitions in both directions and in one, resets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.sim.chance import Chance
    from kafkacompat.sim.cluster_faults import ClusterFaults
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation


class Cuts:
    """Each method returns whether its fault has occurred. The faults heal after a while."""

    def __init__(self, simulation: ClusterSimulation, faults: ClusterFaults, chance: Chance) -> None:
        self._simulation = simulation
        self._faults = faults
        self._chance = chance
        self.links: list[list[tuple[int, int]]] = []
        """Links that are cut."""

    def pause(self) -> bool:
        machine = self._faults.leader() if self._chance.happens(0.5) else self._faults.any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self._faults.tell(f"node {life.id} is paused")
        life.pause()
        self._simulation.counters.pauses += 1
        self._faults.later(self._resume, life)
        return True

    def pause_beyond_session(self) -> bool:
        """Pause a node until just after the controller has fenced it. It then resumes with the same registration."""
        life = self._faults.any().life
        if life is None or life.is_paused:
            return False
        self._faults.tell(f"node {life.id} is paused")
        life.pause()
        self._simulation.counters.pauses += 1
        session_ms = self._simulation.options.session_ms
        self._simulation.scheduler.after(
            self._chance.between(session_ms, session_ms + 300) * 1000, self._resume, life
        )
        return True

    def _resume(self, life: Life) -> None:
        if life.alive and life.is_paused:
            self._faults.tell(f"node {life.id} goes on")
            life.resume()

    def _sever(self, links: list[tuple[int, int]]) -> bool:
        self._faults.tell(f"cut: {links}")
        self._simulation.network.cut(links)
        self.links.append(links)
        self._faults.later(self._mend, links)
        return bool(links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        self.links.remove(links)
        self._faults.tell(f"mended: {links}")
        if not self._faults.is_over:
            self._simulation.network.mend(links)

    def split(self) -> bool:
        ids = [each.id for each in self._simulation.ordered]
        side = {each for each in ids if self._chance.happens(0.5)}
        self._simulation.counters.partitions += 1
        return self._sever([(a, b) for a in ids for b in ids if (a in side) != (b in side)])

    def _isolate_one(self, lonely: int) -> bool:
        others = [each.id for each in self._simulation.ordered if each.id != lonely]
        self._simulation.counters.partitions += 1
        return self._sever([(lonely, other) for other in others] + [(other, lonely) for other in others])

    def isolate(self) -> bool:
        return self._isolate_one(self._faults.any().id)

    def isolate_leader(self) -> bool:
        return self._isolate_one(self._faults.leader().id)

    def cut_one_way(self) -> bool:
        lonely = self._faults.any().id
        others = [each.id for each in self._simulation.ordered if each.id != lonely]
        self._simulation.counters.one_way_partitions += 1
        if self._chance.happens(0.5):
            return self._sever([(lonely, other) for other in others])
        return self._sever([(other, lonely) for other in others])

    def reset_connections(self) -> bool:
        self._simulation.network.burst_loss = 0.1 + 0.5 * self._chance.uniform()
        self._faults.later(self._end_burst, None)
        return True

    def _end_burst(self, _: Any) -> None:
        self._simulation.network.burst_loss = 0.0
