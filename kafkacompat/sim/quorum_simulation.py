"""One run of a metadata quorum with one seed: nodes, a workload, faults, the oracles after every event, then liveness.

`QuorumSimulation(seed).run()` raises Breach (an oracle), QuorumViolation (an invariant of the core) or DiskMisuse. Any
other exception is also a bug of the core. The same seed gives the same run, to the last event (`trace_hash`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.messages import AddRaftVoterRequest, Batch, RemoveRaftVoterRequest, Request, Response
from kafkacompat.raft.quorum import QuorumCore
from kafkacompat.raft.quorum_state import Member
from kafkacompat.raft.roles import Role
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints, ReplicaKey, VoterSet
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.counters import QuorumCounters
from kafkacompat.sim.network import Network
from kafkacompat.sim.quorum_faults import QuorumFaults
from kafkacompat.sim.quorum_node import REFUSAL_US, Core, SimulatedNode
from kafkacompat.sim.quorum_options import MIN_EVENTS, MIN_FAULTS, draw_options
from kafkacompat.sim.quorum_oracles import QuorumOracles
from kafkacompat.sim.scheduler import Scheduler

CLUSTER_ID = "simulated-cluster"
LIVENESS_ROUNDS = 60
"""A healed quorum must commit within this number of fetch and election timeouts."""

Trace = Callable[[SimulatedNode, events.Event, list[effect.Effect]], None]


def endpoints_of(node_id: int) -> Endpoints:
    """The port is the node's id, by which the simulated network finds the node."""
    return (("CONTROLLER", "simulated", node_id),)


def directory_of(node_id: int) -> bytes:
    return b"\x01" + node_id.to_bytes(15, "big")


class QuorumSimulation:
    def __init__(
        self,
        seed: int,
        make_core: Core = QuorumCore,
        trace: Trace | None = None,
        min_events: int = MIN_EVENTS,
        min_faults: int = MIN_FAULTS,
    ) -> None:
        self.seed = seed
        self.options = draw_options(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.options, Chance(seed, "network"))
        self.counters = QuorumCounters()
        self.nodes: dict[int, SimulatedNode] = {}
        self.oracles = QuorumOracles(self.nodes, self.counters)
        self.trace = trace
        self.events = 0
        self.trace_hash = 0
        self._min_events = min_events
        self._min_faults = min_faults
        self._chance = Chance(seed, "workload")
        self._sync_chance = Chance(seed, "disk")
        self._next_proposal = 0
        self._is_calm = False
        self._marker: Batch | None = None
        self._marker_id = -1
        self._make_nodes(make_core)
        self.ordered = list(self.nodes.values())
        self.faults = QuorumFaults(
            self.options, self.scheduler, self.network, self.counters, self.nodes, Chance(seed, "faults")
        )

    def _make_nodes(self, make_core: Core) -> None:
        options = self.options
        voter_ids = list(range(1, options.voters + 1))
        observer_ids = list(range(101, 101 + options.observers))
        comes_and_goes = options.is_dynamic or options.upgrade > 0
        kraft_version = 1 if options.is_dynamic else 0
        voters = VoterSet(
            VoterNode(
                node_id, directory_of(node_id) if options.is_dynamic else bytes(16), endpoints_of(node_id)
            )
            for node_id in voter_ids
        )
        for node_id in voter_ids + observer_ids:
            can_vote = node_id in voter_ids or comes_and_goes
            # If voters change, every node that may have become a voter must be among the bootstrap servers.
            servers = voter_ids + observer_ids if comes_and_goes else voter_ids
            bootstrap = tuple(
                (-2 - index, endpoints_of(server))
                for index, server in enumerate(servers)
                if server != node_id
            )
            member = Member(
                node_id, directory_of(node_id), endpoints_of(node_id), can_vote, CLUSTER_ID, bootstrap
            )
            chance = Chance(self.seed, f"node {node_id}")
            self.nodes[node_id] = SimulatedNode(self, member, voters, kraft_version, make_core, chance)

    # The run.

    def run(self) -> QuorumCounters:
        chance = self._chance
        for node in self.ordered:
            if self.options.drift:
                node.set_clock_rate(1.0 + self.options.drift * (2 * chance.uniform() - 1))
            node.start()
        self.scheduler.after(self.options.propose_interval_us, self._work)
        run_next = self.scheduler.run_next
        while self.events < self._min_events or self.faults.count < self._min_faults:
            run_next()
            self._hash()
        self.counters.events = self.events
        self.counters.faults = self.faults.count
        self._check_liveness()
        self.counters.lost_messages = self.network.lost
        self.counters.duplicated_messages = self.network.duplicated
        return self.counters

    def _hash(self) -> None:
        oracles = self.oracles
        self.trace_hash = zlib.crc32(
            b"%d %d %d" % (self.scheduler.now_us, self.events, oracles.committed_end), self.trace_hash
        )

    def _check_liveness(self) -> None:
        """With all faults healed, a leader must be elected, commit, and bring every node up to date."""
        self._is_calm = True
        self.faults.heal_all()
        settings = self.options.settings
        longest_ms = (
            settings.fetch_timeout_ms * 2 + settings.election_timeout_ms * 2 + settings.request_timeout_ms
        )
        until_us = self.scheduler.now_us + LIVENESS_ROUNDS * longest_ms * 1000
        while self.scheduler.now_us < until_us:
            self.scheduler.run_next()
            self._hash()
            marker = self._marker
            if (
                marker is not None
                and self.oracles.committed_end >= marker.end_offset
                and all(
                    node.core is not None and node.core.high_watermark >= marker.end_offset
                    for node in self.ordered
                )
            ):
                return
        states = ", ".join(
            f"{node.id}: {node.core.role.value} in {node.core.epoch}, {node.core.high_watermark} of {node.core.log.end}, "
            f"{node.core.voters.latest}"
            for node in self.ordered
            if node.core is not None
        )
        raise Breach("liveness", f"nothing new is committed everywhere after all is healed ({states})")

    # The workload.

    def _work(self, _: Any) -> None:
        chance = self._chance
        self.scheduler.after(
            int(self.options.propose_interval_us * (0.2 + 1.6 * chance.uniform())), self._work
        )
        leaders = [
            node
            for node in self.ordered
            if node.core is not None and node.core.role is Role.LEADER and not node.is_paused
        ]
        if leaders:
            self._propose(leaders[chance.randrange(len(leaders))])
        if self._is_calm:
            return
        if self.options.snapshot and chance.happens(self.options.snapshot):
            self.ordered[chance.randrange(len(self.ordered))].make_snapshot()
        if leaders and self.options.membership and chance.happens(self.options.membership):
            self._change_voters(leaders[chance.randrange(len(leaders))])
        if leaders and self.options.resign and chance.happens(self.options.resign):
            leaders[0].enter(events.Resign())
        if leaders and self.options.upgrade and chance.happens(self.options.upgrade):
            leaders[0].enter(events.RaiseKraftVersion(0))
        if chance.happens(0.02):
            # A state machine may propose although it has lost leadership and does not know that yet.
            self.ordered[chance.randrange(len(self.ordered))].enter(events.Propose(0, 0, None, 1, 1))

    def _propose(self, node: SimulatedNode) -> None:
        chance = self._chance
        self._next_proposal += 1
        core = node.core
        assert core is not None
        if self._is_calm and (self._marker is None or self._marker.epoch != core.epoch):
            self._marker_id = self._next_proposal
        size = chance.between(60, 1500)
        node.enter(
            events.Propose(
                self._next_proposal, core.epoch, (self._next_proposal, size), chance.between(1, 3), size
            )
        )

    def proposal_appended(self, proposal_id: int, batch: Batch) -> None:
        if proposal_id == self._marker_id:
            self._marker = batch

    def _change_voters(self, node: SimulatedNode) -> None:
        """Ask a leader to add an observer to the voters or to remove a voter."""
        core = node.core
        if core is None:
            return
        voters = core.voters.latest
        outside = [each for each in self.ordered if each.id not in voters.ids]
        if outside and (len(voters) < 3 or self._chance.happens(0.5)):
            other = outside[self._chance.randrange(len(outside))]
            voter = VoterNode(other.id, directory_of(other.id), endpoints_of(other.id))
            node.ask(AddRaftVoterRequest(voter, 1000, self._chance.happens(0.5), CLUSTER_ID))
        elif len(voters) > 1:
            victim = voters.voters[self._chance.randrange(len(voters))]
            node.ask(RemoveRaftVoterRequest(ReplicaKey(victim.id, victim.directory_id), CLUSTER_ID))

    # What nodes ask for.

    def stepped(self, node: SimulatedNode, event: events.Event, effects: list[effect.Effect]) -> None:
        self.events += 1
        if self.trace is not None:
            self.trace(node, event, effects)

    def resume_later(self, node: SimulatedNode) -> None:
        self.faults.resume_later(node)

    def crash_node(self, node: SimulatedNode) -> None:
        self.faults.crash(node)

    def draw_sync_us(self) -> int:
        uniform = self._sync_chance.uniform
        sync_us = int(self.options.sync_us * (0.5 + uniform()))
        stall = self.options.sync_stall
        return sync_us * 50 if stall and not self._is_calm and uniform() < stall else sync_us

    def deliver_request(
        self, source: SimulatedNode, target: int, correlation_id: int, request: Request
    ) -> None:
        message = (source.id, source.life, correlation_id, request)
        self.network.send(source.id, target, self.nodes[target].request_arrives, message)

    def deliver_response(
        self, source: SimulatedNode, target: int, message: tuple[int, int, Response]
    ) -> None:
        self.network.send(source.id, target, self.nodes[target].response_arrives, message)

    def refuse(self, refusing: int, target: int, life: int, correlation_id: int) -> None:
        if not self.network.is_cut(refusing, target):
            self.scheduler.after(
                REFUSAL_US, self.nodes[target].refusal_arrives, (life, correlation_id, refusing)
            )

    def deliver_probe(self, source: SimulatedNode, voter: ReplicaKey) -> None:
        target = self.nodes[voter.id]
        answers = (
            target.core is not None
            and not target.is_paused
            and not self.network.is_cut(source.id, voter.id)
            and not self.network.is_cut(voter.id, source.id)
        )
        event = events.VoterProbed(voter, target.member.kraft_versions if answers else None)
        self.scheduler.after(2 * self.options.delay_us, source.enter, event)
