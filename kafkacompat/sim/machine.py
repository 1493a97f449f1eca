"""A simulated machine: its disk, the speed of its clock, and the process that runs on it, if any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.config import ServerConfig
from kafkacompat.ports import HalfDone
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.server.data_directories import format_node
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_life import Life
from kafkacompat.sim.cluster_options import (
    LOG_DIRECTORIES,
    METADATA_DIRECTORY,
    MIN_ISR,
    MOVE_RATE,
    ClusterOptions,
    rack_of,
)
from kafkacompat.sim.faults.refusals import OUT_OF_ROOM, Refusals
from kafkacompat.sim.files import FileDisk
from kafkacompat.sim.group_commits import GROUP_SESSION_MS, HEARTBEAT_MS
from kafkacompat.sim.hosts import WALL_CLOCK_ZERO_MS, ProcessEnded
from kafkacompat.sim.links import BROKER_PORT, CLUSTER_ID, CONTROLLER_PORT, EXTERNAL_PORT, host_name
from kafkacompat.sim.secured import listener_of, protocols, secured_properties
from kafkacompat.sim.share_groups import share_group_numbers

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

CONSEQUENCES_US = 1_000_000
AS_LONG_AS_IT_TAKES_MS = 2**31 - 1
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class SimulatedMachine:
    def __init__(self, simulation: ClusterSimulation, machine_id: int, rate: float) -> None:
        options = simulation.options
        self.simulation = simulation
        self.id = machine_id
        self.chance = Chance(simulation.seed, f"machine {machine_id}")
        self._names = Chance(simulation.seed, f"names {machine_id}")
        self.disk = FileDisk()
        self.life: Life | None = None
        """None while no process runs."""
        self.has_power = True
        self.disk_factor, self.link_us = 1, 0
        """How slow its disks are, and the maximum additional delay of its messages."""
        self.wall_offset_ms = 0
        """How far its wall clock is ahead."""
        self.lives = 0
        self.is_broker = machine_id in options.brokers
        self.is_controller = machine_id in options.controllers
        self._rate = rate
        self._config = ServerConfig.from_properties(node_properties(options, machine_id))
        for path in (*self._config.log_dirs, METADATA_DIRECTORY):
            self.disk.make_directory(path)
        self.disk.sync_directory("/")
        format_node(
            self._config,
            self.disk,
            self.chance,
            WALL_CLOCK_ZERO_MS,
            cluster_id=CLUSTER_ID,
            standalone=False,
            initial_voters=simulation.voters if self.is_controller else (),
            feature_levels=simulation.feature_levels,
        )
        self.refusals = Refusals(lambda: simulation.scheduler.now_us)
        self._is_watched = False
        self.disk.meet = self._meet
        self.disk.moved = self._moved
        self.disk.sync_failed = self.refusals.sync_failed

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Observers read files inside this block. The disk refuses nothing then."""
        before, self._is_watched = self._is_watched, True
        try:
            yield
        finally:
            self._is_watched = before

    def _meet(self, operation: str, path: str) -> None:
        """The running process calls the disk."""
        if self._is_watched:
            return
        if self.life is None:
            # Cleanup code of a process that has ended itself.
            raise ProcessEnded
        self.life.work.disk_called()
        self.simulation.faults.deaths.meet(self, operation, path)
        self.refusals.meet(operation, path)
        self.simulation.faults.loads.meet(self, operation, path)

    def _moved(self, count: int) -> None:
        if self.life is not None and not self._is_watched:
            self.life.work.moved(count)

    def unique_text(self) -> str:
        """A start finds directories in the order of their names, so these follow from the seed as well."""
        return self._names.uuid().hex()

    def draw_job_us(self) -> int:
        """Return the duration of a worker's job."""
        return self.disk_factor * self.simulation.draw_sync_us()

    def start(self) -> None:
        self._tell("starts")
        self.has_power = True
        self.lives += 1
        self.refusals.process_starts()
        self.life = life = Life(self, self._config, self._rate)
        life.enter("start", life.start)

    def kill(self) -> None:
        """kill -9: written data stay."""
        self._tell("is killed")
        if self.life is not None:
            self.life.die(silently=False)

    def lose_power(self) -> None:
        """Data that were not synced may be lost, and peers get no signal."""
        self._tell("loses power")
        self.has_power = False
        if self.life is not None:
            self.life.die(silently=True)
        bytes_lost, names_lost = self.disk.lose_power(self.chance)
        self.simulation.counters.lost_bytes += bytes_lost
        self.simulation.counters.lost_names += names_lost

    @property
    def is_well(self) -> bool:
        """Whether its disk refuses nothing, and earlier refusals have had their effects."""
        before_us = self.simulation.scheduler.now_us - CONSEQUENCES_US
        told, life = self.refusals.told, self.life
        is_quiet = not self.refusals.conditions and (not told or told[-1].at_us < before_us)
        if life is None or not is_quiet:
            return is_quiet
        is_known = not told or not life.pools.are_at_work_since(told[-1].at_us)
        return is_known and not life.has_lost_directories

    @property
    def directories(self) -> tuple[str, ...]:
        """Its directories. Each is a separate file system."""
        return (*self.log_directories, METADATA_DIRECTORY)

    @property
    def log_directories(self) -> tuple[str, ...]:
        return tuple(self._config.log_dirs) if self.is_broker else ()

    def may_halt(self, error: BaseException) -> bool:
        """Whether the disk's errors require the process to halt: the metadata directory failed, or all others did.

        If the disk of the metadata log is only full, the process waits instead, unless that stopped the replacement of
        the log by a snapshot half way.
        """
        told = self.refusals.behind(error)
        if told is None:
            return False
        if told.directory == METADATA_DIRECTORY:
            return told.condition not in OUT_OF_ROOM or isinstance(error, HalfDone)
        return all(map(self.refusals.has_failed, self.log_directories))

    def _tell(self, what: str) -> None:
        if self.simulation.tell is not None:
            self.simulation.tell(f"*** node {self.id} {what}")


def initial_voters(seed: int, options: ClusterOptions) -> tuple[VoterNode, ...]:
    """Return the voters of a quorum whose voters are not in the settings."""
    chance = Chance(seed, "voters")
    return tuple(
        VoterNode(each, chance.uuid(), (("CONTROLLER", host_name(each), CONTROLLER_PORT),))
        for each in options.controllers
        if options.changes_voters
    )


def node_properties(options: ClusterOptions, node_id: int) -> dict[str, str]:
    roles, listeners = [], []
    if node_id in options.brokers:
        roles.append("broker")
        # A listener for clients of another network, which is not simulated. Connections to it are refused.
        listeners.append(f"EXTERNAL://{host_name(node_id)}:{EXTERNAL_PORT}")
        listeners.append(f"PLAINTEXT://{host_name(node_id)}:{BROKER_PORT}")
        listeners += listener_of(options, node_id)
    if node_id in options.controllers:
        roles.append("controller")
        listeners.append(f"CONTROLLER://{host_name(node_id)}:{CONTROLLER_PORT}")
    addresses = {each: f"{host_name(each)}:{CONTROLLER_PORT}" for each in options.controllers}
    if options.changes_voters:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
    else:
        voters = ",".join(f"{node}@{address}" for node, address in addresses.items())
        quorum = {"controller.quorum.voters": voters}
    numbers = {
        "controller.quorum.election.timeout.ms": options.election_ms,
        "controller.quorum.fetch.timeout.ms": options.quorum_fetch_ms,
        "controller.quorum.election.backoff.max.ms": options.election_ms,
        "controller.quorum.request.timeout.ms": options.quorum_fetch_ms,
        "broker.heartbeat.interval.ms": options.heartbeat_ms,
        "broker.session.timeout.ms": options.session_ms,
        "controller.socket.timeout.ms": 2 * options.session_ms,
        "replica.lag.time.max.ms": options.lag_ms,
        "replica.fetch.wait.max.ms": options.fetch_wait_ms,
        "replica.fetch.backoff.ms": options.fetch_backoff_ms,
        "replica.fetch.max.bytes": options.fetch_bytes,
        "replica.fetch.response.max.bytes": 4 * options.fetch_bytes,
        "replica.socket.timeout.ms": 4 * options.fetch_wait_ms,
        "replica.high.watermark.checkpoint.interval.ms": 700,
        "log.flush.offset.checkpoint.interval.ms": 1500,
        "log.flush.start.offset.checkpoint.interval.ms": 1500,
        "log.initial.task.delay.ms": 500,
        "log.segment.delete.delay.ms": 500,
        "min.insync.replicas": MIN_ISR,
        "leader.imbalance.check.interval.seconds": 2,
        "offsets.topic.num.partitions": 1,
        "group.min.session.timeout.ms": 100,
        "group.initial.rebalance.delay.ms": 50,
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "request.timeout.ms": 2_000,
        "initial.broker.registration.timeout.ms": AS_LONG_AS_IT_TAKES_MS,
        "metadata.log.max.record.bytes.between.snapshots": options.snapshot_bytes,
        "metadata.max.idle.interval.ms": options.no_op_ms,
        "internal.metadata.log.segment.bytes": 20_000,
        "leader.imbalance.per.broker.percentage": 0,
    }
    if options.segment_bytes:
        numbers |= {
            "log.cleaner.backoff.ms": 1_000,
            "log.cleaner.dedupe.buffer.size": 2 << 20,
            "log.retention.check.interval.ms": 900,
        }
    if options.consumer_members:
        numbers |= consumer_group_numbers(options)
    if options.share_workers:
        numbers |= share_group_numbers(options)
    texts = {}
    if options.share_letters_made:
        texts["errors.deadletterqueue.auto.create.topics.enable"] = "true"
    if options.move_bytes:
        numbers[MOVE_RATE] = options.move_bytes
    return {
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": protocols(options),
        "log.dirs": ",".join(LOG_DIRECTORIES[: options.directories]),
        "metadata.log.dir": METADATA_DIRECTORY,
        "broker.rack": rack_of(node_id),
        "auto.leader.rebalance.enable": str(options.rebalances).lower(),
        "auto.create.topics.enable": "false",
        **quorum,
        **secured_properties(options),
        **texts,
        **({"replica.selector.class": RACK_AWARE} if options.reads_nearby else {}),
        **{name: str(value) for name, value in numbers.items()},
    }


def consumer_group_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, which must be allowed as well."""
    times = {"session.timeout.ms": GROUP_SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    return {
        **{f"group.consumer.{name}": time_ms for name, time_ms in times.items()},
        **{f"group.consumer.min.{name}": time_ms for name, time_ms in times.items()},
        "group.consumer.assignment.interval.ms": options.assignment_ms,
    }
