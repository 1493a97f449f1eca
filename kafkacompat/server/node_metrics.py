"""The metrics of a node: passes the existing parts of the node to the collectors of metrics/.

A part that is not built yet has no series. If a collector fails, that is reported, and the other collectors continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER
from kafkacompat.metrics.broker import (
    PLACEMENTS,
    REPLICATION,
    STATE,
    THROTTLED,
    WAITING,
    Placements,
    Throttled,
    Waiting,
)
from kafkacompat.metrics.clients import client_families, quota_families
from kafkacompat.metrics.coordinators import (
    LOADS,
    SHARE_COORDINATOR,
    TRANSACTIONS,
    TransactionReading,
    group_families,
)
from kafkacompat.metrics.families import At, Families, Sample
from kafkacompat.metrics.network import CERTIFICATES, MEMORY, idle_families, listener_families
from kafkacompat.metrics.partitions import (
    CLEANING,
    LATE_MS,
    CleanerReading,
    log_families,
    partition_families,
    replica_families,
    traffic_families,
)
from kafkacompat.metrics.process import NodeReading, Stalls, disk_families, process_families
from kafkacompat.metrics.quorum import (
    BROKER_METADATA,
    QUORUM,
    AppliedReading,
    ControllerReading,
    LoaderReading,
    controller_families,
    loader_families,
)
from kafkacompat.metrics.requests import request_families
from kafkacompat.metrics.shares import share_families
from kafkacompat.node.broker_lifecycle import BrokerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.metrics.network import Idle
    from kafkacompat.server.raft_server import KafkaRaftServer
    from kafkacompat.server.services import NodeServices
    from kafkacompat.server.shared_server import SharedServer


class NodeMetrics:
    """Implements metrics.endpoint.Node. All calls are in the loop's thread."""

    def __init__(
        self,
        services: NodeServices,
        node: KafkaRaftServer,
        pool_loads: Callable[[], Sequence[tuple[str, int, int]]],
    ) -> None:
        """`pool_loads` returns (duty, running jobs, waiting jobs) for each worker pool."""
        self._services = services
        self._node = node
        self._pool_loads = pool_loads
        self._started_ms = services.clock.now_ms()
        self.stalls: Stalls | None = None
        """The watchdog's stalls, once it runs."""
        self.idle: Callable[[], Idle] | None = None
        """Reads the loop's idle time, if somebody measures it."""
        self.is_stopping = False

    def why_not_ready(self) -> str | None:
        """None for an unfenced broker, and for a controller that knows the quorum's leader. Otherwise the reason.

        A broker keeps its state when it is fenced later, or unregistered. Only the metadata tells that, or that nobody
        answers any more."""
        node = self._node
        if self.is_stopping:
            return "the node stops"
        if node.shared is None:
            return "the node starts"
        if node.broker is not None:
            state = node.broker.lifecycle.state
            if state is not BrokerState.RUNNING:
                return f"the broker's state is {state.name}"
            if node.broker.lifecycle.session_is_over:
                return "no controller answers the broker"
            registration = node.shared.machine.image.brokers.get(self._services.config.node_id)
            if registration is None:
                return "the broker is not registered"
            if registration.fenced:
                return "the broker is fenced"
        if node.shared.driver.leader_id == NO_LEADER:
            return "the metadata quorum has no known leader"
        return None

    def families(self) -> Families:
        for collected in self._collectors():
            try:
                for family in collected:
                    yield family and family._replace(samples=_until_a_failure(family.samples))
            except Exception as error:
                report("collecting metrics", error)

    def _collectors(self) -> Iterator[Families]:
        node = self._node
        shared, broker = node.shared, node.broker
        index_bytes = None if broker is None else broker.logs.index_bytes()
        descriptors = self._services.descriptors
        connections_left = None if descriptors is None else descriptors.connections_left()
        loads = self._pool_loads()
        yield process_families(
            NodeReading(self._started_ms, self.stalls, loads, index_bytes, connections_left)
        )
        if self._services.meters is not None:
            yield request_families(self._services.meters)
        yield disk_families(self._services.config.roles)
        if shared is not None and shared.has_started:
            yield from self._of_quorum(shared)
        parts = (broker, node.controller)
        servers = [
            part.socket_server for part in parts if part is not None and part.socket_server is not None
        ]
        yield listener_families(
            {name: each for server in servers for name, each in server.listener_readings().items()}
        )
        yield CERTIFICATES.of(
            {name: end_s for server in servers for name, end_s in server.certificate_ends_s().items()}
        )
        if servers:
            yield MEMORY.of(servers[0].memory_reading())
        if self.idle is not None:
            yield idle_families(self.idle(), self._services.config.roles)
        now_ms = self._services.clock.monotonic_ms()
        yield quota_families(
            None if broker is None else broker.quotas,
            None if node.controller is None else node.controller.quotas,
            now_ms,
        )
        manager, series = self._services.client_metrics, self._services.client_series
        if manager is not None and series is not None:
            yield client_families(manager, series, now_ms, is_broker=broker is not None)
        if broker is not None:
            yield STATE.of(broker.lifecycle.state.value)
            hosted = broker.partitions.hosted
            coordinators = broker.coordinators
            shares = coordinators.shares
            yield WAITING.of(Waiting(broker.partitions, broker.fetches, shares.fetches.purgatory))
            yield share_families(shares, coordinators.dead_letters, now_ms)
            yield REPLICATION.of(broker.replication)
            yield group_families(coordinators.groups, now_ms)
            transactions, state = coordinators.transactions, coordinators.share_coordinator
            yield TRANSACTIONS.of(TransactionReading(transactions, coordinators.verifier.meter))
            yield SHARE_COORDINATOR.of(At(state, now_ms))
            for kind, times in (
                ("group", coordinators.groups.load_times),
                ("transaction", transactions.load_times),
                ("share", state.load_times),
            ):
                yield LOADS.of(At(times, now_ms), coordinator=kind)
            yield traffic_families(hosted.traffic)
            if broker.remote_storage is not None:
                yield broker.remote_storage.families()
            if broker.mirroring is not None:
                yield broker.mirroring.families()
            longest_ms = self._services.config.get_int("transaction.max.timeout.ms")
            yield replica_families(hosted, self._services.clock.now_ms() - longest_ms - LATE_MS)
            yield partition_families(hosted)
            yield log_families(broker.logs)
            placement, replication = broker.placement, broker.replication
            yield PLACEMENTS.of(Placements(broker.assignments.queued, placement.max_move_lag()))
            yield THROTTLED.of(
                Throttled(
                    replication.leader_throttle.bytes_per_second(),
                    replication.follower_throttle.bytes_per_second(),
                    placement.moved_bytes_per_second(),
                )
            )
            cleaner, moved_bytes = broker.broker_logs.cleaner, broker.broker_logs.cleaner_throttle.moved_bytes
            if cleaner is not None:
                yield CLEANING.of(CleanerReading(cleaner, broker.logs, moved_bytes, now_ms))

    def _of_quorum(self, shared: SharedServer) -> Iterator[Families]:
        driver, machine = shared.driver, shared.machine
        controller, clock = self._node.controller, self._services.clock
        now_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
        yield QUORUM.of(At(driver, monotonic_ms))
        reading = LoaderReading(machine.image, machine.leader_id, machine.snapshots_loaded)
        yield loader_families(reading, SUPPORTED_FEATURES)
        has_static_voters = bool(self._services.config.get_list("controller.quorum.voters"))
        ignores_static_voters = has_static_voters and driver.kraft_version > 0
        if controller is not None:
            queue, sessions = controller.event_queue, controller.liveness.sessions
            brokers = machine.image.brokers
            yield controller_families(
                ControllerReading(
                    image=machine.image,
                    meters=controller.meters,
                    is_active=machine.is_active,
                    end_offset=driver.next_offset,
                    last_timestamp_ms=driver.last_timestamp_ms,
                    now_ms=now_ms,
                    ignores_static_voters=ignores_static_voters,
                    faults=machine.faults,
                    queue_times_ms=queue.queue_times_ms,
                    processing_times_ms=queue.processing_times_ms,
                    timed_out=queue.timed_out,
                    timed_out_heartbeats=controller.controller.timed_out_heartbeats,
                    since_heartbeat_ms={
                        each: sessions.since_contact_ms(each, monotonic_ms) for each in brokers
                    }
                    if machine.is_active
                    else None,
                )
            )
        if self._node.broker is not None:
            yield BROKER_METADATA.of(
                AppliedReading(
                    machine.image,
                    driver.last_timestamp_ms,
                    now_ms,
                    ignores_static_voters,
                    machine.snapshot_faults,
                    machine.batches,
                )
            )


def _until_a_failure(samples: Iterable[Sample | None]) -> Iterator[Sample | None]:
    """A family's samples are read while it is rendered, outside its collector."""
    try:
        yield from samples
    except Exception as error:
        report("collecting metrics", error)
