"""The workers of one simulated share group, what they share, and whoever sets the group's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import Client
from kafkacompat.sim.cluster_changes import setting_request
from kafkacompat.sim.cluster_options import ClusterOptions
from kafkacompat.sim.group_commits import GROUP_SESSION_MS, HEARTBEAT_MS
from kafkacompat.sim.share_group_counters import ShareGroupCounters
from kafkacompat.sim.share_oracles import ShareOracles
from kafkacompat.sim.share_workers import ShareWorker
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

GROUP_ID = "workers"
RESET, EARLIEST = "share.auto.offset.reset", "earliest"
AGAIN_MS = 300


class ShareGroupSettings(Client):
    """Sets where the group begins, and repeats the request until it is carried out."""

    def start(self) -> None:
        request = setting_request(int(ConfigResourceType.GROUP), GROUP_ID, RESET, EARLIEST)

        def altered(done: Deferred[Any]) -> None:
            try:
                error: int = done.result().responses[0].error_code
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error != ErrorCode.NONE:
                self.later(self.start, AGAIN_MS)

        self.ask(self.any_broker(), request, "admin").on_done(altered)


class ShareGroups:
    def __init__(self, simulation: ClusterSimulation, first_id: int) -> None:
        workers = simulation.options.share_workers
        self.group_id = GROUP_ID
        self.counters = ShareGroupCounters()
        self.oracles = ShareOracles(simulation, GROUP_ID, self.counters)
        self._simulation = simulation
        self._workers = [ShareWorker(simulation, first_id + each, self) for each in range(workers)]
        self._settings = ShareGroupSettings(simulation, first_id + workers)

    @property
    def clients(self) -> list[Client]:
        return [*self._workers, self._settings] if self._workers else []

    def is_ready(self) -> bool:
        """Whether all brokers know where the group begins. Before that a leader would begin at the latest records."""
        kind = int(ConfigResourceType.GROUP)
        return all(
            machine.life is not None
            and hasattr(machine.life, "metadata")
            and machine.life.metadata.core.image.config(kind, GROUP_ID).get(RESET) == EARLIEST
            for machine in self._simulation.ordered
            if machine.is_broker
        )

    def watch(self, life: Life, shares: Any) -> None:
        if self._workers:
            self.oracles.watch(life, shares)

    def after_event(self, life: Life) -> None:
        if self._workers:
            self.oracles.after_event(life)

    def answered(self, life: Life, request: Any, response: Any) -> None:
        if self._workers:
            self.oracles.answered(life, request, response)

    def missing(self, topic_id: bytes, partitions: int) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self._workers:
            return None
        keys = [(topic_id, index) for index in range(partitions)]
        assigned = {key for each in self._workers for key in each.assigned}
        if assigned != set(keys):
            return f"of {partitions} partitions the share group has {sorted(index for _, index in assigned)}"
        return self.oracles.missing(keys)


def share_group_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, which must be allowed as well."""
    times = {
        "session.timeout.ms": GROUP_SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "record.lock.duration.ms": options.share_lock_ms,
        "delivery.count.limit": options.share_deliveries,
        "partition.max.record.locks": options.share_record_locks,
    }
    least = {"record.lock.duration.ms": 1_000, "delivery.count.limit": 2, "partition.max.record.locks": 100}
    return {
        **{f"group.share.{name}": value for name, value in times.items()},
        **{f"group.share.min.{name}": least.get(name, value) for name, value in times.items()},
        "group.share.assignment.interval.ms": 0,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.snapshot.update.records.per.snapshot": options.share_updates_per_snapshot,
        "share.coordinator.state.topic.prune.interval.ms": options.share_sweep_ms,
        "share.coordinator.cold.partition.snapshot.interval.ms": options.share_sweep_ms,
    }
