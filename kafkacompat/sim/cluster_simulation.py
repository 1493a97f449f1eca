"""One run of a whole cluster with one seed: nodes, clients, faults, the oracles after every event, then liveness.

`ClusterSimulation(seed).run()` raises Breach (an oracle) or NodeFailed (a node halted itself). Any other exception is
also a bug of a node. The same seed gives the same run, to the last event (`trace_hash`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafkacompat.controller.features import DEFAULT_LEVELS, ELIGIBLE_LEADER_REPLICAS_VERSION
from kafkacompat.faults import listeners
from kafkacompat.ids import NO_LEADER
from kafkacompat.ports import ProbeResult
from kafkacompat.sim.administrator import Administrator
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.client_oracles import ClientOracles
from kafkacompat.sim.clients import Client, Key, KeyedLane, Producer
from kafkacompat.sim.cluster_changes import ClusterChanges, unlike
from kafkacompat.sim.cluster_faults import ClusterFaults
from kafkacompat.sim.cluster_life import Life
from kafkacompat.sim.cluster_options import ClusterOptions, draw_cluster_options
from kafkacompat.sim.cluster_oracles import PartitionOracles
from kafkacompat.sim.committed_reader import CommittedReader, Transactions
from kafkacompat.sim.consumer_groups import ConsumerGroups
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.fetch_oracle import check_parked
from kafkacompat.sim.group_commits import TOPIC
from kafkacompat.sim.groups import Groups
from kafkacompat.sim.hosts import Host
from kafkacompat.sim.image_oracles import ImageOracles, partitions_of
from kafkacompat.sim.keeper import Keeper
from kafkacompat.sim.links import SETUP_TIMEOUT_US, machine_of
from kafkacompat.sim.machine import SimulatedMachine, initial_voters
from kafkacompat.sim.network import Network
from kafkacompat.sim.readers import Consumer
from kafkacompat.sim.rights_changes import RightsChanges
from kafkacompat.sim.rights_oracle import RightsOracle
from kafkacompat.sim.scheduler import Scheduler
from kafkacompat.sim.secured_clients import SecuredClient
from kafkacompat.sim.share_groups import ShareGroups
from kafkacompat.sim.topics import APART, DEAD_LETTERS, MADE_ANEW, kept_topics
from kafkacompat.sim.transactional import TransactionalProducer
from kafkacompat.sim.unexpected import heard
from kafkacompat.sim.voter_changes import VoterChanges

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
MAX_EVENTS = 200_000

Trace = Callable[[Host, str], None]


class ClusterSimulation:
    def __init__(self, seed: int, **shape: Any) -> None:
        """`shape`: options that are not drawn from the seed."""
        self.seed = seed
        self.options: ClusterOptions = replace(draw_cluster_options(seed), **shape)
        self.trace: Trace | None = None
        """Called before every event of a node or client."""
        self.tell: Callable[[str], None] | None = None
        """Called for faults of nodes, and for every change of metadata and partitions."""
        self.trace_hash = 0
        self.counters = ClusterCounters()
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.options, Chance(seed, "network"))
        self.image_oracles = ImageOracles(self)
        self.partition_oracles = PartitionOracles(self)
        self.client_oracles = ClientOracles(self, self.partition_oracles)
        self.rights_oracle = RightsOracle(self)
        self.feature_levels = [
            (name, level)
            for name, level in DEFAULT_LEVELS
            if self.options.has_elr or name != ELIGIBLE_LEADER_REPLICAS_VERSION
        ]
        self.voters = initial_voters(seed, self.options)
        self.slow_chance = Chance(seed, "slow")
        self._sync_chance = Chance(seed, "sync")
        drift = Chance(seed, "drift")
        self.machines = {
            each: SimulatedMachine(self, each, 1.0 + self.options.drift * (2 * drift.uniform() - 1))
            for each in sorted({*self.options.controllers, *self.options.brokers})
        }
        self.ordered = list(self.machines.values())
        self.producers = [Producer(self, PRODUCER_IDS + each) for each in range(self.options.producers)]
        self.consumer = Consumer(self, CONSUMER_ID)
        self.administrator = Administrator(self, ADMINISTRATOR_ID)
        self.voter_changes = VoterChanges(self, VOTER_CHANGES_ID)
        self.transactions = Transactions(self)
        self.transactional = [
            TransactionalProducer(self, TRANSACTIONAL_IDS + each)
            for each in range(self.options.transactional_producers)
        ]
        self.reader = CommittedReader(self, READER_ID) if self.transactional else None
        self.changes = ClusterChanges(self, CHANGES_ID)
        self.groups = Groups(self, GROUPS_ID, self.options.members)
        self.consumer_groups = ConsumerGroups(self, CONSUMER_GROUPS_ID)
        self.share_groups = ShareGroups(self, SHARE_GROUPS_ID)
        self.keeper = Keeper(self, KEEPER_ID)
        self.rights_changes = RightsChanges(self, RIGHTS_CHANGES_ID)
        self.secured_clients = [
            SecuredClient(self, SECURED_IDS + each) for each in range(self.options.secured_clients)
        ]
        self.producer_ids: set[int] = set()
        self.topics: set[str] = set()
        self.is_over_for_producers = False
        self.is_calm = False
        self._connections = 0
        self._reported: list[BaseException] = []
        """Bugs of the broker, and breaches found by oracles, raised where the broker continues with other work."""
        self.faults = ClusterFaults(self, Chance(seed, "faults"))

    def run(self) -> ClusterCounters:
        listeners.append(self._heard)
        try:
            with heard(self._heard):
                return self._run()
        finally:
            listeners.remove(self._heard)

    def _heard(self, error: BaseException) -> None:
        """A part reports a bug, or logs an unexpected exception."""
        if not self.faults.pools.is_ours(error):
            self._reported.append(error)

    def _run(self) -> ClusterCounters:
        for machine in self.ordered:
            machine.start()
        clients: list[Client] = [*self.producers, self.consumer, self.administrator, *self.transactional]
        if self.reader is not None:
            clients.append(self.reader)
        if self.voters:
            clients.append(self.voter_changes)
        if self.options.change_ms:
            clients.append(self.changes)
        clients += [*self.groups.clients, *self.consumer_groups.clients, *self.share_groups.clients]
        if kept_topics(self.options):
            clients.append(self.keeper)
        if self.secured_clients:
            clients += [self.rights_changes, *self.secured_clients]
        for client in clients:
            client.enter("start", client.start)
        self._run_until(self.options.faulty_ms * 1000)
        self.faults.heal_all()
        self.is_calm = True
        self._run_until(self.scheduler.now_us + 1_500_000)
        self.is_over_for_producers = True
        call_off_us = self.scheduler.now_us + CALL_OFF_MS * 1000
        deadline_us = self.scheduler.now_us + SETTLE_MS * 1000
        while (missing := self._missing()) is not None:
            if self.scheduler.now_us > call_off_us:
                if self._is_stuck_as_in_kafka():
                    break
                self.administrator.enter("call off", self.administrator.call_off)
            if self.scheduler.now_us > deadline_us:
                raise Breach("liveness", f"{missing}")
            self._run_until(self.scheduler.now_us + CHECK_EVERY_US)
        self.transactions.check()
        self.faults.pools.check()
        self.counters.faults = self.faults.count
        return self.counters

    def _run_until(self, end_us: int) -> None:
        scheduler = self.scheduler
        while scheduler.now_us < end_us:
            scheduler.run_next()
            if self._reported:
                raise self._reported[0]
            if self.counters.events > MAX_EVENTS:
                raise Breach("liveness", f"events beget events without end, at {scheduler.now_us} us")

    def _is_stuck_as_in_kafka(self) -> bool:
        """Whether no assigned replica may lead; see `PartitionChangeBuilder`."""
        return any(
            partition.leader == NO_LEADER
            and not partition.isr
            and {*partition.eligible_leader_replicas, *partition.last_known_elr} - {*partition.replicas}
            for _, partition in partitions_of(self.image_oracles.newest)
        )

    def _missing(self) -> str | None:
        """Return what a healed cluster has not completed yet. None if everything is done."""
        image = self.image_oracles.newest
        for machine in self.ordered:
            if machine.life is None:
                return f"node {machine.id} does not run"
            if machine.is_controller and set(machine.life.driver.voters.ids) != set(self.options.controllers):
                return (
                    f"of the controllers node {machine.id} knows {machine.life.driver.voters.ids} as voters"
                )
            if machine.is_broker:
                broker = image.brokers.get(machine.id)
                if broker is None or broker.fenced:
                    return f"broker {machine.id} is fenced or unknown"
        if not self.administrator.is_settled:
            return "a topic is to be made anew"
        if not self.topics <= image.topics.keys() or not self.topics:
            return f"of topics {sorted(self.topics)} there are {sorted(image.topics)}"
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
                life = self.machines[replica].life
                core = None if life is None or life.partitions is None else life.partitions.by_id.get(key)
                if life is None or core is None:
                    return f"node {replica} has no {name}"
                misplaced = life.misplaced(core.topic_partition, partition.directory(replica))
                if misplaced is not None:
                    return f"on node {replica} {name} {misplaced}"
                other = unlike(core, image)
                if other is not None:
                    return f"on node {replica} {name} {other}"
                self.partition_oracles.check_whole(life, core)
                ends[replica] = (core.log.log_end_offset, core.log.high_watermark)
            ledger = self.partition_oracles.ledgers[key]
            if set(ends.values()) != {(ledger.end, ledger.end)}:
                return f"replicas end at {ends}, committed is {ledger.end}: {name}"
            if self.consumer.positions.get(key) != ledger.end:
                return f"the consumer is at {self.consumer.positions.get(key)} of {ledger.end}: {name}"
            if self.reader is not None and self.reader.positions.get(key) != ledger.end:
                return f"read_committed is at {self.reader.positions.get(key)} of {ledger.end}: {name}"
            self._check_lanes(key, name)
        return None

    def _check_lanes(self, key: Key, name: str) -> None:
        """Check the producers of a partition that has been read to its end."""
        topic = self.partition_oracles.ledgers[key].name.topic
        for producer in self.producers:
            lane = producer.lanes.get(key)
            read = self.consumer.next_sequences.get((key, producer.producer_id), 0)
            if lane is not None and topic not in APART and lane.acknowledged != read:
                raise Breach(
                    "each acknowledged record is consumed",
                    f"{read} of {lane.acknowledged} of producer {producer.producer_id} in {name}",
                )
            if isinstance(lane, KeyedLane):
                self.client_oracles.check_latest(key, lane.latest)

    # Reports from hosts.

    def event(self, host: Host, what: str) -> None:
        self.counters.events += 1
        if isinstance(host, Life):
            host.work.begin(what)
        self.trace_hash = zlib.crc32(f"{self.scheduler.now_us} {host.id} {what}".encode(), self.trace_hash)
        if self.trace is not None:
            self.trace(host, what)

    def after_event(self, host: Host) -> None:
        if isinstance(host, Life):
            if not host.is_stopping and (host.is_serving or not host.machine.is_broker):
                # During a start and a stop, only their own callers wait.
                host.work.check(host.id)
            if host.machine.disk.trusted:
                raise Breach(
                    "no trust after a failed sync", f"node {host.id} syncs again {host.machine.disk.trusted}"
                )
            self.partition_oracles.look(host)
            self.share_groups.after_event(host)
            partitions, fetches = host.partitions, host.fetches
            if host.alive and partitions is not None and fetches is not None:
                with host.machine.watched():
                    check_parked(host.id, partitions, fetches)

    def stopped(self, life: Life) -> None:
        """A life has shut down cleanly."""
        life.die(silently=False)
        self.faults.restart_later(life.machine)

    def found(self, failure: BaseException) -> None:
        """Record the failure, even if the code that raised it continues."""
        self._reported.append(failure)

    def producer_identified(self, producer: Producer, producer_id: int) -> None:
        if producer_id in self.producer_ids:
            raise Breach("a producer id is given once", f"{producer_id} again, to {producer.id}")
        self.producer_ids.add(producer_id)

    def topic_created(self, name: str) -> None:
        self.topics.add(name)

    def is_deleted(self, key: Key) -> bool:
        """Clients learn of a deletion from error codes, and from Metadata, which an old answer may contradict."""
        return key[0] in self.image_oracles.deleted

    def is_for_producers(self, topic: str) -> bool:
        """Whether producers use the topic. Internal topics belong to the coordinators, dead letters to the brokers."""
        return not topic.startswith("__") and topic != DEAD_LETTERS

    def is_for_transactions(self, topic: str) -> bool:
        """Whether transactions use the topic. Deleting a topic would delete a part of a transaction."""
        return self.is_for_producers(topic) and topic != MADE_ANEW and topic not in APART

    def lowest_position(self, key: Key) -> int:
        read = self.consumer.positions.get(key, 0)
        return read if self.reader is None else min(read, self.reader.positions.get(key, 0))

    def sends(self, host_id: int) -> None:
        """A message leaves the host."""
        machine = self.machines.get(host_id)
        if machine is not None and machine.life is not None:
            machine.life.work.messages += 1

    # Services for hosts.

    def next_connection_id(self) -> int:
        self._connections += 1
        return self._connections

    def draw_sync_us(self) -> int:
        uniform = self._sync_chance.uniform
        sync_us = int(self.options.sync_us * (0.5 + uniform()))
        stall = self.options.sync_stall
        return sync_us * 50 if stall and not self.is_calm and uniform() < stall else sync_us

    def link_us(self, host_id: int) -> int:
        """Return the additional maximum delay of a machine's messages. 0 for clients."""
        machine = self.machines.get(host_id)
        return 0 if machine is None else machine.link_us

    def dial(self, source: Host, host: str, port: int, done: Callable[[Life | ProbeResult], None]) -> None:
        """Try to connect. The result arrives as an event."""
        machine = self.machines[machine_of(host)]

        def reached(_: Any) -> None:
            life = machine.life
            cut = self.network.is_cut(source.id, machine.id) or self.network.is_cut(machine.id, source.id)
            if cut or not machine.has_power:
                self.scheduler.after(
                    SETUP_TIMEOUT_US,
                    lambda _: source.enter("unreachable", lambda: done(ProbeResult.UNREACHABLE)),
                )
            elif life is None or port not in life.listening:
                source.enter("refused", lambda: done(ProbeResult.REFUSED))
            else:
                source.enter("connected", lambda: done(life))

        self.scheduler.after(2 * self.network.draw_delay_us(), reached)
