"""The workers of one simulated share group, what they share, and whoever sets the group's configuration and creates its
dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import TIMEOUT_MS, Client
from kafkacompat.sim.cluster_changes import settings_request
from kafkacompat.sim.cluster_options import REPLICATION_FACTOR, ClusterOptions
from kafkacompat.sim.counters import ShareGroupCounters
from kafkacompat.sim.dead_letter_oracle import TAKES_LETTERS
from kafkacompat.sim.group_commits import GROUP_SESSION_MS, HEARTBEAT_MS
from kafkacompat.sim.share_oracles import ShareOracles
from kafkacompat.sim.share_workers import ShareWorker
from kafkacompat.sim.topics import DEAD_LETTERS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

GROUP_ID = "workers"
RESET, EARLIEST = "share.auto.offset.reset", "earliest"
LETTERS_TOPIC = "errors.deadletterqueue.topic.name"
LETTERS_COPY = "errors.deadletterqueue.copy.record.enable"
LETTERS_PARTITIONS = 2
AGAIN_MS = 300


class ShareGroupSettings(Client):
    """Sets where the group begins and where its dead letters go. Repeats each request until it is carried out.

    Then it may switch the dead-letter topic on and off.
    """

    def __init__(self, simulation: ClusterSimulation, client_id: int, is_ready: Callable[[], bool]) -> None:
        super().__init__(simulation, client_id)
        self._is_ready = is_ready

    def start(self) -> None:
        options = self.simulation.options
        self._configure()
        if options.share_dead_letters:
            if not options.share_letters_made:
                self._create_topic()
            if options.share_letters_switch_ms:
                self.later(self._switch, AGAIN_MS)

    def _configure(self) -> None:
        request = settings_request(
            int(ConfigResourceType.GROUP), GROUP_ID, group_settings(self.simulation.options)
        )
        self.ask(self.any_broker(), request, "admin").on_done(
            lambda done: self._repeat(done, "responses", self._configure)
        )

    def _create_topic(self) -> None:
        topic = CreatableTopic(
            name=DEAD_LETTERS,
            num_partitions=LETTERS_PARTITIONS,
            replication_factor=REPLICATION_FACTOR,
            configs=[CreatableTopicConfig(name=TAKES_LETTERS, value="true")],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "admin").on_done(
            lambda done: self._repeat(done, "topics", self._create_topic)
        )

    def _switch(self) -> None:
        """While the topic does not exist, the request is refused."""
        if self.simulation.is_over_for_producers:
            return
        if self._is_ready():
            value = "true" if self.chance.happens(0.5) else "false"
            request = settings_request(int(ConfigResourceType.TOPIC), DEAD_LETTERS, {TAKES_LETTERS: value})
            self.ask(self.any_broker(), request, "admin").on_done(_ignored)
        self.later(self._switch, 2 * self.simulation.options.share_letters_switch_ms)

    def _repeat(self, done: Deferred[Any], rows: str, ask: Callable[[], None]) -> None:
        try:
            error: int = getattr(done.result(), rows)[0].error_code
        except ChannelError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.later(ask, AGAIN_MS)


def _ignored(done: Deferred[Any]) -> None:
    """Whether it is carried out does not matter."""


def group_settings(options: ClusterOptions) -> dict[str, str]:
    settings = {RESET: EARLIEST}
    if options.share_dead_letters:
        settings |= {LETTERS_TOPIC: DEAD_LETTERS, LETTERS_COPY: str(options.share_letters_copy).lower()}
    return settings


class ShareGroups:
    def __init__(self, simulation: ClusterSimulation, first_id: int) -> None:
        workers = simulation.options.share_workers
        self.group_id = GROUP_ID
        self.counters = ShareGroupCounters()
        self.oracles = ShareOracles(simulation, GROUP_ID, self.counters)
        self._simulation = simulation
        self._workers = [ShareWorker(simulation, first_id + each, self) for each in range(workers)]
        self._settings = ShareGroupSettings(simulation, first_id + workers, self.is_ready)
        self._was_ready = False

    @property
    def clients(self) -> list[Client]:
        return [*self._workers, self._settings] if self._workers else []

    def is_ready(self) -> bool:
        """Whether all brokers have known where the group begins, and its dead-letter topic. Before that a leader would begin
        at the latest records, and give dead letters up."""
        self._was_ready = self._was_ready or all(
            machine.life is not None
            and hasattr(machine.life, "metadata")
            and self._is_known(machine.life.metadata.core.image)
            for machine in self._simulation.ordered
            if machine.is_broker
        )
        return self._was_ready

    def _is_known(self, image: MetadataImage) -> bool:
        options = self._simulation.options
        is_needed = options.share_dead_letters and not options.share_letters_made
        has_topic = image.config(int(ConfigResourceType.TOPIC), DEAD_LETTERS).get(TAKES_LETTERS) == "true"
        settings = image.config(int(ConfigResourceType.GROUP), GROUP_ID)
        return settings == group_settings(options) and (has_topic or not is_needed)

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
        "default.replication.factor": REPLICATION_FACTOR,
    }
