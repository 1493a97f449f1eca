"""One run of a whole cluster with one seed: nodes, clients, faults, the oracles after every event, then liveness.

`ClusterSimulation(seed).run()` raises Breach (an oracle) or NodeFailed (a node halted itself). Any other exception is
also a bug of a node. The same seed gives the same run, to the last event (`trace_hash`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafkacompat.faults import listeners
from kafkacompat.ids import NO_LEADER
from kafkacompat.sim.administrators import Administrator, ClusterChanges, TopicSetup, VoterChanges, unlike
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.classic_group import Groups
from kafkacompat.sim.clients import Client, KeyedLane, Producer
from kafkacompat.sim.cluster_faults import ClusterFaults
from kafkacompat.sim.cluster_options import (
    APART,
    TOPIC,
    draw_cluster_options,
    is_mirrored,
    kept_topics,
)
from kafkacompat.sim.committed_metadata import Key, partitions_of
from kafkacompat.sim.consumer_groups import ConsumerGroups
from kafkacompat.sim.consumers import CommittedReader, Consumer, Reader, Transactions
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import Machines, SimulatedMachine, initial_voters
from kafkacompat.sim.oracles import ClusterOracles, heard
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.remote_store import SimulatedRemoteStore
from kafkacompat.sim.secured_clients import RightsChanges, SecuredClient
from kafkacompat.sim.share_groups import ShareGroups
from kafkacompat.sim.streams_groups import StreamsGroups
from kafkacompat.sim.tiers import TierReader, Tiers
from kafkacompat.sim.transactional_producer import TransactionalProducer

SETTLE_MS = 60_000
"""Virtual time within which a healed cluster must have created, moved and read everything."""
CALL_OFF_MS = 15_000
"""After this time, remaining reassignments are cancelled. In Kafka 4.3.0 a reassignment whose target was changed while
it was in progress may never end."""
CHECK_EVERY_US = 200_000
PRODUCER_IDS, CONSUMER_ID, ADMINISTRATOR_ID = 1000, 2000, 3000
TRANSACTIONAL_IDS, READER_ID = 4000, 5000
VOTER_CHANGES_ID = 6000
GROUPS_ID = 7000
CHANGES_ID = 8000
KEEPER_ID = 9000
RIGHTS_CHANGES_ID, SECURED_IDS = 10_000, 11_000
CONSUMER_GROUPS_ID = 12_000
SHARE_GROUPS_ID = 13_000
STREAMS_GROUPS_ID = 14_000
TIER_READER_ID = 15_000
MAX_EVENTS = 200_000


class ClusterSimulation:
    def __init__(self, seed: int, beside: ClusterSimulation | None = None, **shape: Any) -> None:
        """`beside`: another cluster in the same run, which can be reached. `shape`: options that are not drawn from the seed."""
        options = replace(draw_cluster_options(seed), **shape)
        self.env: Environment = Environment(seed, options, None if beside is None else beside.env)
        env = self.env
        self.clusters: tuple[ClusterSimulation, ...] = (self,)
        """Those of this run. Only the first one's `run` is called."""
        self.machines = machines = Machines()
        self.reachable: dict[int, SimulatedMachine] = {} if beside is None else beside.reachable
        self.oracles = oracles = ClusterOracles(env, machines.by_id)
        self.faults = ClusterFaults(env, machines, oracles.partitions, oracles.streams_counters)
        self.links = links = Links(env, self.reachable)
        self.store = SimulatedRemoteStore(env) if options.tier_segment_bytes else None
        drift = Chance(seed, "drift")
        for each in sorted({*options.controllers, *options.brokers}):
            rate = 1.0 + options.drift * (2 * drift.uniform() - 1)
            machine = self.reachable[each] = SimulatedMachine(
                links, oracles, self.faults, each, rate, self.store
            )
            machines.add(machine)
        self.producers = [Producer(links, PRODUCER_IDS + each) for each in range(options.producers)]
        self.consumer = Consumer(links, CONSUMER_ID, oracles.clients)
        self.transactions = Transactions(env.counters)
        self.transactional = [
            TransactionalProducer(links, TRANSACTIONAL_IDS + each, self.transactions)
            for each in range(options.transactional_producers)
        ]
        self.reader: CommittedReader | None = None
        readers: list[Reader] = [self.consumer]
        if self.transactional:
            self.reader = CommittedReader(links, READER_ID, oracles.clients, self.transactions)
            readers.append(self.reader)
        self.administrator = Administrator(links, ADMINISTRATOR_ID, oracles.clients, readers)
        self.groups = Groups(links, GROUPS_ID, options.members)
        self.consumer_groups = ConsumerGroups(links, CONSUMER_GROUPS_ID)
        self.share_groups = ShareGroups(links, SHARE_GROUPS_ID, oracles, machines.by_id)
        self.streams_groups = StreamsGroups(links, STREAMS_GROUPS_ID, oracles)
        clients: list[Client] = [*self.producers, self.consumer, self.administrator, *self.transactional]
        if self.reader is not None:
            clients.append(self.reader)
        if voters := initial_voters(seed, options):
            clients.append(VoterChanges(links, VOTER_CHANGES_ID, voters))
        if options.change_ms:
            clients.append(ClusterChanges(links, CHANGES_ID))
        clients += [*self.groups.clients, *self.consumer_groups.clients, *self.share_groups.clients]
        clients += self.streams_groups.clients
        self.tiers: Tiers | None = None
        if self.store is not None:
            tier_reader = TierReader(links, TIER_READER_ID, oracles, self.store.counters)
            clients.append(tier_reader)
            self.tiers = Tiers(self.store, tier_reader, machines.by_id, oracles)
            for machine in machines.ordered:
                machine.tiers = self.tiers
            if oracles.shares is not None:
                oracles.shares.tier_counters = self.store.counters
            self.store.begin()
        if kept_topics(options):
            clients.append(TopicSetup(links, KEEPER_ID))
        if options.secured_clients:
            changes = RightsChanges(links, RIGHTS_CHANGES_ID, oracles.rights)
            clients.append(changes)
            clients += [
                SecuredClient(links, SECURED_IDS + each, oracles.rights, changes)
                for each in range(options.secured_clients)
            ]
        self.clients = clients
        self.faults.begin()

    def run(self) -> ClusterCounters:
        listeners.append(self._heard)
        try:
            with heard(self._heard):
                return self._run()
        finally:
            listeners.remove(self._heard)
            if self.store is not None:
                for machine in self.machines.ordered:
                    if machine.life is not None:
                        machine.life.forget_tasks()

    def _heard(self, error: BaseException) -> None:
        """A part reports a bug, or logs an unexpected exception."""
        told = [each.faults.pools.is_ours(error) for each in self.clusters]
        if not any(told):
            self.env.found(error)

    def _run(self) -> ClusterCounters:
        env, scheduler = self.env, self.env.scheduler
        for each in self.clusters:
            each.begin()
        self.run_until(env.options.faulty_ms * 1000)
        for each in self.clusters:
            each.heal()
        self.run_until(scheduler.now_us + 1_500_000)
        for each in self.clusters:
            each.rest()
        call_off_us = scheduler.now_us + CALL_OFF_MS * 1000
        deadline_us = scheduler.now_us + SETTLE_MS * 1000
        while (missing := self.missing()) is not None:
            if scheduler.now_us > call_off_us:
                if any(each.is_stuck_as_in_kafka() for each in self.clusters):
                    break
                for each in self.clusters:
                    each.administrator.enter("call off", each.administrator.call_off)
            if scheduler.now_us > deadline_us:
                raise Breach("liveness", f"{missing}")
            self.run_until(scheduler.now_us + CHECK_EVERY_US)
        for each in self.clusters:
            each.transactions.check()
            each.faults.pools.check()
        self.check()
        env.counters.faults = sum(each.faults.control.count for each in self.clusters)
        return env.counters

    def begin(self) -> None:
        for machine in self.machines.ordered:
            machine.start()
        for client in self.clients:
            client.enter("start", client.start)

    def heal(self) -> None:
        self.faults.heal_all()
        if self.store is not None:
            self.store.heal()
        self.env.is_calm = True

    def rest(self) -> None:
        """Nothing new is begun."""
        self.env.is_over_for_producers = True
        if self.tiers is not None:
            self.tiers.rests_since_us = self.env.scheduler.now_us

    def run_until(self, end_us: int) -> None:
        env, scheduler = self.env, self.env.scheduler
        while scheduler.now_us < end_us:
            scheduler.run_next()
            if env.failures:
                raise env.failures[0]
            if env.counters.events > MAX_EVENTS:
                raise Breach("liveness", f"events beget events without end, at {scheduler.now_us} us")

    def is_stuck_as_in_kafka(self) -> bool:
        """Whether no assigned replica may lead; see `PartitionChangeBuilder`."""
        return any(
            partition.leader == NO_LEADER
            and not partition.isr
            and {*partition.eligible_leader_replicas, *partition.last_known_elr} - {*partition.replicas}
            for _, partition in partitions_of(self.env.metadata.newest)
        )

    def missing(self) -> str | None:
        """Return what healed clusters have not completed yet. None if everything is done."""
        return next(filter(None, (each.missing_here() for each in self.clusters)), None)

    def check(self) -> None:
        """Called once, at the end of the run."""

    def missing_here(self) -> str | None:
        options, image = self.env.options, self.env.metadata.newest
        for machine in self.machines.ordered:
            if machine.life is None:
                return f"node {machine.id} does not run"
            if machine.is_controller and set(machine.life.driver.voters.ids) != set(options.controllers):
                return (
                    f"of the controllers node {machine.id} knows {machine.life.driver.voters.ids} as voters"
                )
            if machine.is_broker:
                broker = image.brokers.get(machine.id)
                if broker is None or broker.fenced:
                    return f"broker {machine.id} is fenced or unknown"
        if not self.administrator.is_settled:
            return "a topic is to be made anew"
        if not self.env.topics <= image.topics.keys() or not self.env.topics:
            return f"of topics {sorted(self.env.topics)} there are {sorted(image.topics)}"
        for producer in self.producers:
            if not producer.lanes or not all(lane.is_idle for lane in producer.lanes.values()):
                return f"producer {producer.id} waits for an acknowledgement"
        for each in self.transactional:
            if not each.is_idle:
                return f"{each.transactional_id} waits for its transaction's end"
        topic = image.topics[TOPIC]
        partitions = len(topic.partitions)
        owed = (
            self.groups.missing(partitions)
            or self.consumer_groups.missing(image)
            or self.share_groups.missing(topic.id, partitions)
            or self.streams_groups.missing(image)
        )
        if owed is not None:
            return owed
        for key, partition in partitions_of(image):
            name = f"{image.topics_by_id[key[0]].name}-{key[1]}: {partition}"
            if partition.adding_replicas or partition.removing_replicas:
                return f"it still moves: {name}"
            if set(partition.isr) != set(partition.replicas):
                return f"not all are in sync: {name}"
            ends = {}
            for replica in partition.replicas:
                life = self.machines.by_id[replica].life
                core = None if life is None or life.partitions is None else life.partitions.by_id.get(key)
                if life is None or core is None:
                    return f"node {replica} has no {name}"
                misplaced = life.misplaced(core.topic_partition, partition.directory(replica))
                if misplaced is not None:
                    return f"on node {replica} {name} {misplaced}"
                other = unlike(core, image)
                if other is not None:
                    return f"on node {replica} {name} {other}"
                if not self.oracles.partitions.check_whole(life, core):
                    return f"node {replica} has what its leader has given up: {name}"
                ends[replica] = (core.log.log_end_offset, core.log.high_watermark)
            ledger = self.oracles.partitions.ledgers[key]
            if set(ends.values()) != {(ledger.end, ledger.end)}:
                return f"replicas end at {ends}, committed is {ledger.end}: {name}"
            if is_mirrored(ledger.name.topic):
                continue
            if self.consumer.positions.get(key) != ledger.end:
                return f"the consumer is at {self.consumer.positions.get(key)} of {ledger.end}: {name}"
            if self.reader is not None and self.reader.positions.get(key) != ledger.end:
                return f"read_committed is at {self.reader.positions.get(key)} of {ledger.end}: {name}"
            self._check_lanes(key, name)
        return None if self.tiers is None else self.tiers.missing(image)

    def _check_lanes(self, key: Key, name: str) -> None:
        """Check the producers of a partition that has been read to its end."""
        topic = self.oracles.partitions.ledgers[key].name.topic
        for producer in self.producers:
            lane = producer.lanes.get(key)
            read = self.consumer.next_sequences.get((key, producer.producer_id), 0)
            if lane is not None and topic not in APART and lane.acknowledged != read:
                raise Breach(
                    "each acknowledged record is consumed",
                    f"{read} of {lane.acknowledged} of producer {producer.producer_id} in {name}",
                )
            if isinstance(lane, KeyedLane):
                self.oracles.clients.check_latest(key, lane.latest)
