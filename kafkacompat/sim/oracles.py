"""All oracles of a simulated cluster. Nodes report to them."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.sim.client_oracles import ClientOracles
from kafkacompat.sim.cluster_oracles import PartitionOracles
from kafkacompat.sim.counters import ShareGroupCounters
from kafkacompat.sim.image_oracles import ImageOracles
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.rights_oracle import RightsOracle
from kafkacompat.sim.share_oracles import GROUP_ID, ShareOracles
from kafkacompat.sim.views import MachineView, NodeView
from kafkacompat.sim.waiting_oracles import AnswerOracle, check_fetches


class ClusterOracles:
    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        self.partitions = PartitionOracles(env, machines)
        self.images = ImageOracles(env, machines, self.partitions)
        self.clients = ClientOracles(env, machines, self.partitions)
        self.rights = RightsOracle(env, machines)
        self.answers = AnswerOracle(env, machines)
        self.share_counters = ShareGroupCounters()
        self.shares: ShareOracles | None = None
        """None in a cluster without a share group."""
        if env.options.share_workers:
            self.shares = ShareOracles(env, machines, self.partitions, GROUP_ID, self.share_counters)

    def after_event(self, life: NodeView) -> None:
        self.partitions.look(life)
        if self.shares is not None:
            self.shares.after_event(life)
        if life.alive and life.partitions is not None and life.fetches is not None:
            with life.machine.watched():
                check_fetches(life.id, life.partitions, life.fetches)
