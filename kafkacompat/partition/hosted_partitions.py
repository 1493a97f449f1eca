"""The partitions that this node hosts, by name and by id, with their roles in each image (ReplicaManager.applyDelta).

It creates and drops logs, starts leaders and followers, and applies settings. Requests are unknown here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.controller.changed_keys import changed_configs
from kafkacompat.controller.changed_topics import changed_topics
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition, Uuid
from kafkacompat.partition.anchoring import Anchoring
from kafkacompat.partition.arrivals import OPENED_AT_ONCE_MAX, Arrivals
from kafkacompat.partition.changes import Changes
from kafkacompat.partition.isr import Standing
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.reconfiguring import Reconfiguring
from kafkacompat.partition.round import Round
from kafkacompat.partition.traffic import BrokerTraffic
from kafkacompat.partition.wakeups import Wakeups
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import PartitionRegistration
    from kafkacompat.partition.listeners import Placing, Replicating
    from kafkacompat.ports import Clock, LogManager, Timers, WorkerPools

logger = logging.getLogger(__name__)

Key = tuple[str, int]


class HostedPartitions:
    """The partitions of this node. Used in the loop's thread only."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        clock: Clock,
        timers: Timers,
        workers: WorkerPools,
        log_config: Callable[[str], LogConfig],
        replication: Replicating | None,
    ) -> None:
        """Without `replication` nothing is followed and the ISR stays as in the metadata."""
        self.node_id = node_id
        self.image = MetadataImage()
        self.by_name: dict[Key, Partition] = {}
        self.by_id: dict[tuple[Uuid, int], Partition] = {}
        self.anchoring = Anchoring(
            workers.log_sync, timers, log_manager.log_failed, self._serves, self._anchored
        )
        self._log_manager = log_manager
        self._clock = clock
        self._log_config = log_config
        self._replication = replication
        self.standing = Standing()
        self.traffic = BrokerTraffic()
        self.wakeups = Wakeups(self.by_name, clock, timers)
        self.advanced = self.wakeups.advanced
        self._arrivals = Arrivals(
            node_id, timers, workers.files, log_manager, log_config, partial(self._take_role, is_new=True)
        )
        self.changes = Changes(timers, self._change, lambda problem: self.fail(problem))
        """Role changes of the last image that are not applied yet."""
        self.reconfiguring = Reconfiguring(
            timers, log_config, self._advance, lambda problem: self.fail(problem)
        )
        self.fail: Callable[[BaseException], None] = _raise
        """Halts the node."""
        self._waiting = Round(self.by_id, timers, lambda problem: self.fail(problem))
        """Over the leaders whose records wait for replicas, after brokers have changed."""
        self._offline: set[TopicPartition] = set()
        self._opened = 0
        """Number of logs that the present image has opened at once."""
        self.placing: Placing | None = None
        """Without it, logs stay in the directory where they were created."""
        log_manager.on_offline = self._lost

    # Lookups

    def core(self, partition: Key) -> Partition | None:
        """The partition with its role applied and its log open. None if it is not on this node."""
        if self.changes and partition in self.changes:
            self.changes.take_now(partition)
        core = self.by_name.get(partition)
        if core is None and self._arrivals and self._arrivals.open_now(partition):
            return self.by_name.get(partition)
        return core

    @property
    def opens_logs(self) -> bool:
        """Whether partitions wait for a first request to open their logs."""
        return bool(self._arrivals)

    def core_by_id(self, topic_id: Uuid, partition: int) -> Partition | None:
        """Like `core`, for clients that name topics by id."""
        core = self.by_id.get((topic_id, partition))
        if core is not None and self.changes and core.topic_partition in self.changes:
            self.changes.take_now(core.topic_partition)
            core = self.by_id.get((topic_id, partition))
        if core is None and (self._arrivals or self.changes):
            topic = self.image.topics_by_id.get(topic_id)
            return None if topic is None else self.core((topic.name, partition))
        return core

    @property
    def offline_count(self) -> int:
        """Replicas whose log is in a directory that failed, or cannot be opened."""
        return len(self._offline)

    def leader_error(self, partition: TopicPartition, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE if this node leads the partition in that epoch, otherwise the error for the client."""
        core = self.core(partition)
        return self.absent(partition) if core is None else core.check_leader(current_leader_epoch)

    def is_known(self, partition: Key) -> bool:
        topic = self.image.topics.get(partition[0])
        return topic is not None and partition[1] in topic.partitions

    def is_being_added(self, core: Partition, replica: int) -> bool:
        """Whether a reassignment adds this replica."""
        topic = self.image.topics_by_id.get(core.topic_id)
        image = None if topic is None else topic.partitions.get(core.topic_partition.partition)
        return image is not None and replica in image.adding_replicas

    def absent(self, partition: Key) -> ErrorCode:
        """The reason why a partition is not here: unknown, on another node, or its log cannot be opened."""
        if not self.is_known(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # Images

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply a new image: create and drop logs, start leaders and followers, change settings."""
        self.image = new
        self.standing.brokers = new.brokers
        if self._replication is not None:
            self._replication.on_image(new)
        if self.placing is not None and old.offset < 0:
            self.placing.recover(new)
        # Settings come before roles: a leader left alone in the ISR must not commit by an old min.insync.replicas. The
        # controller already uses the new value for eligible leader replicas (KIP-966). Apache Kafka 4.3.0 applies the
        # roles first.
        reconfigured = [] if old.configs is new.configs else self._reconfigure(old, new)
        if old.topics_by_id is not new.topics_by_id:
            self._opened = 0
            self.changes.begin()
            self._follow(old, new)
        for core in reconfigured:
            self._advance(core)
        if old.brokers is not new.brokers:
            self._waiting.begin(self.advance_if_waiting)

    def advance_if_waiting(self, core: Partition) -> bool:
        """Look again at a leader whose records wait for replicas. Return whether there were any.

        A replica that is about to join the ISR is waited for while its broker is well and it has caught up not long ago.
        Neither comes to an end with a request.
        """
        if not core.is_leader or core.log.high_watermark >= core.log.log_end_offset:
            return False
        self._advance(core)
        return True

    def _advance(self, core: Partition) -> None:
        # `core` applies a new role first: this node may have lost the leadership in the same image.
        if self.core(core.topic_partition) is core and core.maybe_increment_leader_high_watermark(
            self._clock.monotonic_ms()
        ):
            self.advanced(core)

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Collect the role changes. Only at a node's first image must all of them be applied at once."""
        add, is_first = self.changes.add, old.offset < 0
        for before, topic in changed_topics(old, new):
            if topic is None:
                assert before is not None
                is_internal = before.name in INTERNAL_TOPICS
                for index in sorted(before.partitions):
                    add(TopicPartition(before.name, index), before.id, None, now=is_internal)
                continue
            known = {} if before is None else before.partitions
            # Coordinators get the same image next and use the logs that are led now.
            now = is_first or topic.name in INTERNAL_TOPICS
            for index, partition in topic.partitions.items():
                former = known.get(index)
                if former is partition:
                    continue
                key = TopicPartition(topic.name, index)
                if self.node_id in partition.replicas:
                    # Partitions of the first image may have been here before this start.
                    is_new = former is None and (not is_first or not self._log_manager.may_have(key))
                    add(key, topic.id, partition, is_new=is_new, now=now)
                elif former is not None and self.node_id in former.replicas:
                    add(key, topic.id, None, now=now)

    def _change(
        self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration | None, is_new: bool
    ) -> None:
        if image is None:
            self._drop(name, topic_id)
        elif name in self._arrivals or (
            (is_new and self._opened >= OPENED_AT_ONCE_MAX) or self._has_to_wait(name, image, is_new)
        ):
            self._arrivals.add(name, topic_id, image)
        else:
            self._take_role(name, topic_id, image, is_new)
            self._opened += is_new

    def finish_changes(self) -> None:
        """Apply the rest of the last image's roles before a stop, so that logs of deleted topics are deleted."""
        self.changes.finish()

    def _has_to_wait(self, name: TopicPartition, image: PartitionRegistration, is_new: bool) -> bool:
        """Whether the log must be created and the checkpoints still have entries of an old log of that name."""
        return (
            self._log_manager.get(name) is None
            and (is_new or self._may_begin_empty(image))
            and not self._log_manager.may_make(name)
        )

    def _may_begin_empty(self, image: PartitionRegistration) -> bool:
        return self.placing is not None and self.placing.may_begin_empty(image)

    def _take_role(
        self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration, is_new: bool
    ) -> None:
        core = self.by_id.get((topic_id, name.partition))
        try:
            if core is None:
                config = self._log_config(name.topic)
                log = self._log_manager.get_or_create(
                    name,
                    topic_id,
                    config,
                    image.directory(self.node_id),
                    is_new=is_new or self._may_begin_empty(image),
                )
                if log.config is not config:
                    # The log was found at the start and has the node's default config.
                    log.config = config
                traffic = self.traffic.begin(name.topic)
                core = Partition(self.node_id, name, topic_id, log, self.standing, traffic)
                self.by_name[name] = self.by_id[topic_id, name.partition] = core
            else:
                self.reconfiguring.first(core)
            now_ms = self._clock.monotonic_ms()
            was_alone = core.alone
            changed = core.become(image, now_ms)
        except (OSError, LogRefused) as error:
            logger.error("the log of %s cannot be opened: %s", name, error)
            if isinstance(error, OSError) and core is not None:
                self.storage_failed(core, error)
            self._drop_core(name, topic_id)
            self._offline.add(name)
            if (is_new or self._may_begin_empty(image)) and self._log_manager.is_short(error.__cause__):
                self._arrivals.add_short(name, topic_id, image)
            return
        self._offline.discard(name)
        if changed or (was_alone and not core.alone):
            # The first other replicas of a leader come without a new epoch, and must be watched from then on.
            self.follow_anew(core)
        self.anchoring.add(core)
        if self.placing is not None:
            self.placing.role_taken(core, image)
        advanced = core.maybe_increment_leader_high_watermark(now_ms)
        if changed:
            self.wakeups.role_changed(core)
        elif advanced:
            self.advanced(core)

    def _serves(self, core: Partition) -> bool:
        return self.by_id.get((core.topic_id, core.topic_partition.partition)) is core

    def follow_anew(self, core: Partition) -> None:
        """Follow the leader again, when allowed: after a role change, a new directory, or a new address of the leader."""
        self._hold_back(core)
        if self._replication is not None and (core.is_leader or self._may_follow(core)):
            self._replication.role_taken(core)

    def _may_follow(self, core: Partition) -> bool:
        return core.log.is_anchored and not core.is_held_back

    def _hold_back(self, core: Partition) -> None:
        """Hold the partition back while a checkpoint offset is too high for its log. Otherwise new records would count
        as replicated, and a start would not check them."""
        if core.is_held_back:
            return
        told = self._log_manager.when_true(core.log)
        if not told.done:
            core.is_held_back = True
            told.on_done(lambda _: self._release(core))

    def _release(self, core: Partition) -> None:
        core.is_held_back = False
        if self._serves(core):
            self._anchored(core)

    def _anchored(self, core: Partition) -> None:
        """The log is durable, or its checkpoints are correct. With both, the partition may follow and its records may
        be committed."""
        self.follow_anew(core)
        if core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
            self.advanced(core)

    def log_replaced(self, core: Partition) -> None:
        """The partition's log is now in another directory, under a name that is not durable yet."""
        self.anchoring.add(core)
        self.advanced(core)

    def _drop(self, name: TopicPartition, topic_id: Uuid) -> None:
        self._offline.discard(name)
        self._arrivals.discard(name)
        core = self._drop_core(name, topic_id)
        if core is not None:
            self._log_manager.delete_later(name)
            self.wakeups.role_changed(core)

    def storage_failed(self, core: Partition, error: OSError) -> None:
        """An operation on the log's files failed."""
        self._log_manager.partition_failed(core.topic_partition, error)

    def when_true(self, core: Partition) -> Deferred[None]:
        """Resolve when no checkpoint has an offset that is too high for the log."""
        return self._log_manager.when_true(core.log)

    def _lost(self, names: Sequence[TopicPartition]) -> None:
        """A directory is offline. Its partitions are answered KAFKA_STORAGE_ERROR from now on."""
        for name in names:
            core = self.by_name.get(name)
            self._offline.add(name)
            if core is not None:
                self._drop_core(name, core.topic_id)
                self.wakeups.role_changed(core)

    def _drop_core(self, name: TopicPartition, topic_id: Uuid) -> Partition | None:
        core = self.by_id.pop((topic_id, name.partition), None)
        if core is None:
            return None
        core.resign()
        self.reconfiguring.gone(core)
        self.traffic.end(name.topic, core.traffic)
        if self.placing is not None:
            self.placing.gone(core)
        if self._replication is not None:
            self._replication.gone(core)
        if self.by_name.get(name) is core:
            del self.by_name[name]
        return core

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> Sequence[Partition]:
        """Update the settings of logs if a lower layer's or the topic's settings changed. Returns the partitions that have
        them now."""
        changed = changed_configs(old, new)
        if any(kind == ConfigResourceType.BROKER for kind, _ in changed):
            return self.reconfiguring.begin(list(self.by_id.values()))
        cores: list[Partition] = []
        for kind, name in sorted(changed):
            topic = new.topics.get(name) if kind == ConfigResourceType.TOPIC else None
            for index in () if topic is None else topic.partitions:
                core = self.by_name.get((name, index))
                if core is not None:
                    cores.append(core)
        return self.reconfiguring.begin(cores)


def _raise(problem: BaseException) -> None:
    raise problem
