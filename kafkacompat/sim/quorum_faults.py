"""The faults of a simulated quorum: crashes (also in the middle of a step), pauses, network partitions in both
directions and in one, lost messages, clock errors, full disks.

Each fault heals after a while. `heal_all` ends all faults at once, for the liveness phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkacompat.raft import events
from kafkacompat.raft.roles import Role
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.counters import QuorumCounters
from kafkacompat.sim.network import Network
from kafkacompat.sim.quorum_node import SimulatedNode
from kafkacompat.sim.quorum_options import Options
from kafkacompat.sim.scheduler import Scheduler


class QuorumFaults:
    def __init__(
        self,
        options: Options,
        scheduler: Scheduler,
        network: Network,
        counters: QuorumCounters,
        nodes: Mapping[int, SimulatedNode],
        chance: Chance,
    ) -> None:
        self._options = options
        self._scheduler = scheduler
        self._network = network
        self._counters = counters
        self._nodes = list(nodes.values())
        self._chance = chance
        self.count = 0
        self._is_over = False
        self._kinds: tuple[Callable[[], None], ...] = (
            self._crash,
            self._crash,
            self._crash_in_step,
            self._blink,
            self._blink,
            self._crash_leader,
            self._pause,
            self._split,
            self._split,
            self._isolate_leader,
            self._cut_one_way,
            self._lossy,
            self._drift,
            self._crash_many,
            self._fill_disk,
            self._fill_disk_in_step,
        )
        self._plan()

    def _plan(self) -> None:
        mean_ms = self._options.fault_interval_ms
        self._scheduler.after(int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform())), self._strike)

    def _strike(self, _: Any) -> None:
        if self._is_over:
            return
        self.count += 1
        self._kinds[self._chance.randrange(len(self._kinds))]()
        self._plan()

    def heal_all(self) -> None:
        self._is_over = True
        # Raft guarantees progress only if messages are much faster than election timeouts.
        self._network.calm(self._options.settings.election_timeout_ms * 1000 // 10)
        for node in self._nodes:
            node.effects_until_crash = -1
            node.effects_until_full = -1
            node.resume()
            node.enter(events.RoomFound())
            if node.core is None:
                node.start()

    def _later(self, call: Callable[[Any], None], argument: Any) -> None:
        delay_ms = self._chance.between(5, self._options.fault_ms)
        self._scheduler.after(delay_ms * 1000, call, argument)

    def _any_node(self) -> SimulatedNode:
        nodes = self._nodes
        return nodes[self._chance.randrange(len(nodes))]

    def _leader(self) -> SimulatedNode:
        leaders = [node for node in self._nodes if node.core is not None and node.core.role is Role.LEADER]
        return leaders[self._chance.randrange(len(leaders))] if leaders else self._any_node()

    # Crashes and pauses.

    def _crash(self) -> None:
        self._kill(self._any_node())

    def _crash_leader(self) -> None:
        self._kill(self._leader())

    def _blink(self) -> None:
        """Restart some nodes at once, while other nodes still have requests to them in flight."""
        for node in self._nodes:
            if node.core is not None and self._chance.happens(0.5):
                node.crash()
                delay_us = self._chance.between(100, 10_000)
                self._scheduler.after(delay_us, self._restart, (node, node.life))

    def _crash_many(self) -> None:
        for node in self._nodes:
            if self._chance.happens(0.6):
                self._kill(node)

    def _kill(self, node: SimulatedNode) -> None:
        if node.core is not None:
            self.crash(node)

    def _crash_in_step(self) -> None:
        node = self._any_node() if self._chance.happens(0.5) else self._leader()
        if node.core is not None:
            node.effects_until_crash = self._chance.randrange(4)

    def crash(self, node: SimulatedNode) -> None:
        """Power off. The node starts again after a while."""
        node.crash()
        self._later(self._restart, (node, node.life))

    def _restart(self, planned: tuple[SimulatedNode, int]) -> None:
        node, life = planned
        if node.life == life and node.core is None:
            node.start()

    def _pause(self) -> None:
        node = self._leader() if self._chance.happens(0.4) else self._any_node()
        if node.core is not None and not node.is_paused:
            node.is_paused = True
            self._counters.pauses += 1
            self._later(self._resume, (node, node.life))

    def _resume(self, planned: tuple[SimulatedNode, int]) -> None:
        node, life = planned
        if node.life == life:
            node.resume()

    # Full disks.

    def _fill_disk(self) -> None:
        """Make the leader's log refuse a proposal."""
        node = self._leader()
        if node.core is not None:
            self._counters.full_leaders += node.core.role is Role.LEADER
            node.enter(events.Resign(until_room=True))
            self._later(self._make_room, (node, node.life))

    def _make_room(self, planned: tuple[SimulatedNode, int]) -> None:
        node, life = planned
        if node.life == life:
            node.enter(events.RoomFound())

    def _fill_disk_in_step(self) -> None:
        node = self._any_node() if self._chance.happens(0.5) else self._leader()
        if node.core is not None and not node.is_paused:
            node.effects_until_full = self._chance.randrange(4)

    def resume_later(self, node: SimulatedNode) -> None:
        self._later(self._resume, (node, node.life))

    # The network.

    def _cut(self, links: list[tuple[int, int]]) -> None:
        self._network.cut(links)
        self._counters.partitions += 1
        self._later(self._mend, links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        if not self._is_over:
            self._network.mend(links)

    def _split(self) -> None:
        ids = [node.id for node in self._nodes]
        side = {node_id for node_id in ids if self._chance.happens(0.5)}
        self._cut([(a, b) for a in ids for b in ids if (a in side) != (b in side)])

    def _isolate_leader(self) -> None:
        leader_id = self._leader().id
        others = [node.id for node in self._nodes if node.id != leader_id]
        self._cut([(leader_id, other) for other in others] + [(other, leader_id) for other in others])

    def _cut_one_way(self) -> None:
        self._counters.one_way_partitions += 1
        node_id = self._any_node().id
        others = [node.id for node in self._nodes if node.id != node_id]
        if self._chance.happens(0.5):
            self._cut([(node_id, other) for other in others])
        else:
            self._cut([(other, node_id) for other in others])

    def _lossy(self) -> None:
        self._network.burst_loss = self._chance.uniform()
        self._later(self._end_burst, None)

    def _end_burst(self, _: Any) -> None:
        self._network.burst_loss = 0.0

    def _drift(self) -> None:
        drift = self._options.drift
        self._any_node().set_clock_rate(1.0 + drift * (2 * self._chance.uniform() - 1))
