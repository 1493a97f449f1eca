"""The partitions that this node hosts, by name and by id, with their roles in each image (ReplicaManager.applyDelta).

It creates and drops logs, starts leaders and followers, and applies settings. What concerns many partitions goes on in
later turns: roles (RoleChanges), the logs of new partitions (UnopenedLogs), settings (ConfigChanges), a look at all of
them (visits). Requests are unknown here.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from kafkacompat.controller.image import MetadataImage, changed_configs, changed_topics
from kafkacompat.faults import report
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition, Uuid
from kafkacompat.partition.log_syncs import NewLogSyncs
from kafkacompat.partition.partition import Partition, Standing
from kafkacompat.partition.purgatories import Wakeups
from kafkacompat.partition.traffic import BrokerTraffic
from kafkacompat.ports import LogRefused, passes
from kafkacompat.tasks import Work, in_turns, pause
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import PartitionRegistration, TopicImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.log.opening import Preparation
    from kafkacompat.partition.partition import PendingPartitionChange
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Plan
    from kafkacompat.tasks import Started

logger = logging.getLogger(__name__)

Key = tuple[str, int]
ENDING_RETRY_MS = 1_000
"""Delay after a disk or the log has refused the markers that end a mirror."""


class Replicating(Protocol):
    """The parts of ReplicaFetcherManager that are called here. A Protocol, because that module uses this one."""

    def attach(self, hosted: HostedPartitions) -> None:
        """Called once, before any image."""
        ...

    def on_image(self, new: MetadataImage) -> None:
        """Called before the roles of that image are applied."""
        ...

    def role_taken(self, core: Partition) -> None:
        """The partition leads, follows or waits for a leader, possibly in a new epoch."""
        ...

    def gone(self, core: Partition) -> None: ...

    def propose(self, core: Partition, proposal: PendingPartitionChange) -> None: ...


class Placing(Protocol):
    """The parts of Placement that are called here. A Protocol, because that module uses this one."""

    def recover(self, image: MetadataImage) -> None:
        """Called with the first image, before its roles are applied."""
        ...

    def may_begin_empty(self, image: PartitionRegistration) -> bool:
        """Whether the log may be created empty even if an offline directory may have it."""
        ...

    def role_taken(self, core: Partition, image: PartitionRegistration) -> None: ...

    def give_up(self, core: Partition, damaged_offset: int) -> bool:
        """Have another replica lead. False if there is none that could."""
        ...

    def gone(self, core: Partition) -> None: ...


class Tiering(Protocol):
    """The parts of RemoteLogManager that are called here and by fetchers."""

    def role_taken(self, core: Partition) -> None:
        """The partition leads or follows, possibly in a new epoch, or has other settings."""
        ...

    def gone(self, core: Partition, *, is_deleted: bool, was_leader: bool) -> None:
        """The partition is not on this node any more. `is_deleted`: nor anywhere else."""
        ...

    async def follower_state(
        self, core: Partition, epoch: int, offset: int, epoch_end_offset: int
    ) -> FollowerState | None:
        """With what a follower begins whose leader has this offset, of this epoch, in the remote storage only. Of the leader
        this epoch ends at `epoch_end_offset`. None if it cannot be read now."""
        ...


class Mirroring(Protocol):
    """The parts of MirrorManager that are called here."""

    def role_taken(self, core: Partition) -> None:
        """The partition leads or follows, possibly in a new epoch, or has other settings."""
        ...

    def gone(self, core: Partition) -> None: ...


class FollowerState(Protocol):
    """The end of a remote segment, its leader epochs, and the snapshot of producers there."""

    @property
    def offset(self) -> int: ...

    @property
    def epochs(self) -> Sequence[tuple[int, int]]: ...

    @property
    def producer_snapshot(self) -> bytes: ...


class HostedPartitions:
    """The partitions of this node. Used in the loop's thread only."""

    def __init__(
        self,
        services: PartitionServices,
        replication: Replicating | None,
    ) -> None:
        """Without `replication` nothing is followed and the ISR stays as in the metadata."""
        self.node_id = services.node_id
        self.image = MetadataImage()
        self.by_name: dict[Key, Partition] = {}
        self.by_id: dict[tuple[Uuid, int], Partition] = {}
        self._services = services
        self._log_manager = services.logs
        self._clock = services.clock
        self._log_config = services.settings.log_config
        self.new_log_syncs = NewLogSyncs(services, self._serves, self._made_durable)
        self._replication = replication
        self.standing = Standing()
        self.traffic = BrokerTraffic()
        self.wakeups = Wakeups(self.by_name, self.absent, services.clock, services.timers)
        self.advanced = self.wakeups.advanced
        self._unopened = UnopenedLogs(services, partial(self._take_role, is_new=True))
        self.changes = RoleChanges(services, self._change)
        """Role changes of the last image that are not applied yet."""
        self.reconfiguring = ConfigChanges(services, self._advance, self._reconfigured)
        self._walk: Started | None = None
        """Over the leaders whose records wait for replicas, after brokers have changed."""
        self._offline: set[TopicPartition] = set()
        self._opened = 0
        """Number of logs that the present image has opened at once."""
        self.placing: Placing | None = None
        """Without it, logs stay in the directory where they were created."""
        self.tiering: Tiering | None = None
        """None without remote.log.storage.system.enable."""
        self.mirroring: Mirroring | None = None
        """None where no mirror can follow its source."""
        services.logs.when_offline(self._lost)

    # Lookups

    def core(self, partition: Key) -> Partition | None:
        """The partition with its role applied and its log open. None if it is not on this node."""
        if self.changes and partition in self.changes:
            self.changes.take_now(partition)
        core = self.by_name.get(partition)
        if core is None and self._unopened and self._unopened.open_now(partition):
            return self.by_name.get(partition)
        return core

    @property
    def opens_logs(self) -> bool:
        """Whether partitions wait for a first request to open their logs."""
        return bool(self._unopened)

    def core_by_id(self, topic_id: Uuid, partition: int) -> Partition | None:
        """Like `core`, for clients that name topics by id."""
        core = self.by_id.get((topic_id, partition))
        if core is not None and self.changes and core.topic_partition in self.changes:
            self.changes.take_now(core.topic_partition)
            core = self.by_id.get((topic_id, partition))
        if core is None and (self._unopened or self.changes):
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

    def replica_error(self, partition: TopicPartition) -> ErrorCode:
        """NONE if this node has a replica of the partition, otherwise the error for the client."""
        return ErrorCode.NONE if self.core(partition) is not None else self.absent(partition)

    def is_known(self, partition: Key) -> bool:
        topic = self.image.topics.get(partition[0])
        return topic is not None and partition[1] in topic.partitions

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
            if self._walk is not None:
                self._walk.cancel()
            self._walk = self._services.start_or_halt("waiting leaders", self._advance_waiting())

    async def _advance_waiting(self) -> None:
        await in_turns(visits(self.by_id, self.advance_if_waiting))

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
                self.changes.add_deletion(before, now=before.name in INTERNAL_TOPICS)
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
        elif name in self._unopened or (
            (is_new and self._opened >= OPENED_AT_ONCE_MAX) or self._has_to_wait(name, image, is_new)
        ):
            self._unopened.add(name, topic_id, image)
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
                if log.config is not config or log.log_start_offset < log.local_log_start_offset:
                    # The log was found at the start and has the node's default config, which may be the topic's too. Only now
                    # is it known whether what lies below its files is in the remote storage.
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
                self._unopened.add_short(name, topic_id, image)
            return
        self._offline.discard(name)
        if changed or (was_alone and not core.alone):
            # The first other replicas of a leader come without a new epoch, and must be watched from then on.
            self.follow_anew(core)
        if changed:
            self._go_on_ending_mirror(core)
        self.new_log_syncs.add(core)
        if self.placing is not None:
            self.placing.role_taken(core, image)
        if self.tiering is not None:
            self.tiering.role_taken(core)
        if self.mirroring is not None:
            self.mirroring.role_taken(core)
        advanced = core.maybe_increment_leader_high_watermark(now_ms)
        if changed:
            self.wakeups.role_changed(core)
        elif advanced:
            self.advanced(core)

    def _reconfigured(self, core: Partition) -> None:
        was_ending_mirror = core.is_ending_mirror
        try:
            if core.take_config():
                self.wakeups.appended(core)
        except OSError as error:
            self.storage_failed(core, error)
            if not self._serves(core):
                return
        if not was_ending_mirror:
            self._go_on_ending_mirror(core)
        if self.tiering is not None:
            self.tiering.role_taken(core)
        if self.mirroring is not None:
            self.mirroring.role_taken(core)
        # A mirror that ends has markers at its end, and records of an answer that is not taken to its end.
        if core.log.config.mirror_leader_epoch and core.maybe_increment_leader_high_watermark(
            self._clock.monotonic_ms()
        ):
            self.advanced(core)

    def _go_on_ending_mirror(self, core: Partition) -> None:
        if core.is_ending_mirror:
            self._services.tasks.start(f"ending the mirror {core.topic_partition}", self._end_mirror(core))

    async def _end_mirror(self, core: Partition) -> None:
        """End the rest of its source's open transactions, of which there may be a hundred thousand. A full disk may have room
        again: until then the partition takes no records."""
        epoch = core.leader_epoch
        told = ""
        while True:
            await pause()
            if not (self._serves(core) and core.is_ending_mirror and core.leader_epoch == epoch):
                return
            try:
                core.end_mirror()
            except OSError as error:
                self.storage_failed(core, error)
                await self._services.tasks.sleep(ENDING_RETRY_MS)
                continue
            except (LogRefused, MemoryError) as problem:  # indexes that are being rebuilt, for example
                if repr(problem) != told:
                    told = repr(problem)
                    logger.warning(
                        "transactions of the source of %s cannot be ended now: %s", core.topic_partition, told
                    )
                await self._services.tasks.sleep(ENDING_RETRY_MS)
                continue
            self.wakeups.appended(core)
            if core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
                self.advanced(core)

    def _serves(self, core: Partition) -> bool:
        return self.by_id.get((core.topic_id, core.topic_partition.partition)) is core

    def follow_anew(self, core: Partition) -> None:
        """Follow the leader again, when allowed: after a role change, a new directory, or a new address of the leader."""
        self._hold_back(core)
        if self._replication is not None and (core.is_leader or self._may_follow(core)):
            self._replication.role_taken(core)

    def _may_follow(self, core: Partition) -> bool:
        return core.log.is_durable and not core.is_held_back

    def _hold_back(self, core: Partition) -> None:
        """Hold the partition back while a checkpoint offset is too high for its log. Otherwise new records would count
        as replicated, and a start would not check them."""
        if core.is_held_back:
            return
        told = self._log_manager.when_true(core.log)
        if not told.done:
            core.is_held_back = True
            self._services.tasks.start(f"holding back {core.topic_partition}", self._release(core, told))

    async def _release(self, core: Partition, told: Deferred[None]) -> None:
        await told
        core.is_held_back = False
        if self._serves(core):
            self._made_durable(core)

    def _made_durable(self, core: Partition) -> None:
        """The log is durable, or its checkpoints are correct. With both, the partition may follow and its records may
        be committed."""
        self.follow_anew(core)
        if core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
            self.advanced(core)

    def log_replaced(self, core: Partition) -> None:
        """The partition's log is now in another directory, under a name that is not durable yet."""
        self.new_log_syncs.add(core)
        self.advanced(core)

    def _drop(self, name: TopicPartition, topic_id: Uuid) -> None:
        self._offline.discard(name)
        self._unopened.discard(name)
        core = self._drop_core(name, topic_id)
        if core is not None:
            self._log_manager.delete_later(name)
            self.wakeups.role_changed(core)
        else:
            # The directory of its log has failed. A copy in another one would take the place of a later topic's log.
            self._log_manager.discard_future(name)

    def storage_failed(self, core: Partition, error: OSError) -> None:
        """An operation on the log's files failed. Of a partition that has gone meanwhile that says nothing of the directory that
        another of its name has."""
        if self._serves(core):
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
        if self.tiering is not None:
            is_deleted = topic_id not in self.image.topics_by_id
            self.tiering.gone(core, is_deleted=is_deleted, was_leader=core.is_leader)
        core.resign()
        if self.mirroring is not None:
            self.mirroring.gone(core)
        self.reconfiguring.gone(core)
        self.traffic.end(name.topic)
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


TAKEN_AT_ONCE_MAX = 100
"""Changes of one image that are applied at once, so that small images stay simple."""
TAKEN_US = 40
"""Of one change: 30 to 100."""


class RoleChanges:
    """Role changes of a new image, applied a few at a time, or when a request needs the partition.

    Each partition's changes are kept in order. An image that changes many partitions at once (a broker with thousands
    is fenced, a large topic is deleted) would delay requests. Until its turn a partition keeps its former role, as if
    this broker had received the image later. A request for the partition applies its change first. Bounded by the
    partitions of the images that brought the changes.

    One record deletes a topic, so an image may delete any number of partitions. A deleted topic waits as a whole.
    """

    __slots__ = ("_at_once_left", "_deleted", "_is_applying", "_services", "_take", "_waiting")

    def __init__(
        self,
        services: PartitionServices,
        take: Callable[[TopicPartition, Uuid, PartitionRegistration | None, bool], None],
    ) -> None:
        """`take` is called with the partition, its topic id, its image (None if the partition left this node), and
        whether it is new."""
        self._services = services
        self._take = take
        self._waiting: OrderedDict[
            Key, list[tuple[TopicPartition, Uuid, PartitionRegistration | None, bool]]
        ] = OrderedDict()
        """A plain dictionary would pass over everything taken before, to find the first one that is left."""
        self._deleted: OrderedDict[str, DeletedTopic] = OrderedDict()
        """The last change of each partition that is left of a deleted topic. What waits for it as well comes before."""
        self._is_applying = False
        self._at_once_left = TAKEN_AT_ONCE_MAX

    def __bool__(self) -> bool:
        return bool(self._waiting or self._deleted)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting or self._is_deleted(name)

    def _is_deleted(self, name: Key) -> bool:
        topic = self._deleted.get(name[0])
        return topic is not None and topic.has(name[1])

    def begin(self) -> None:
        """Start with another image."""
        self._at_once_left = TAKEN_AT_ONCE_MAX

    def add(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        image: PartitionRegistration | None,
        *,
        is_new: bool = False,
        now: bool = False,
    ) -> None:
        """Add a change. `now` applies it at once, for components that use the same image next."""
        if self._deleted and self._is_deleted(name):
            # Of an earlier topic of that name.
            self._wait(name, self._taken_out(name), None, is_new=False)
        if name not in self._waiting and (now or self._at_once_left > 0):
            self._at_once_left -= 1
            self._take(name, topic_id, image, is_new)
            return
        self._wait(name, topic_id, image, is_new=is_new)
        if now:
            self.take_now(name)
        else:
            self._apply_later()

    def add_deletion(self, topic: TopicImage, *, now: bool) -> None:
        """Add the change of each partition of a topic that is deleted."""
        count = len(topic.partitions)
        # There are several deleted topics of one name only while the first one's changes wait.
        at_once = count if now or topic.name in self._deleted else min(count, max(0, self._at_once_left))
        for index in range(at_once):
            self.add(TopicPartition(topic.name, index), topic.id, None, now=now)
        if at_once < count:
            self._deleted[topic.name] = DeletedTopic(topic.id, at_once, count)
            self._apply_later()

    def _wait(
        self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration | None, *, is_new: bool
    ) -> None:
        waiting = self._waiting.setdefault(name, [])
        if waiting and waiting[-1][1] == topic_id:
            # The newer image includes everything of the older one.
            is_new = waiting.pop()[3] and image is not None
        waiting.append((name, topic_id, image, is_new))

    def _apply_later(self) -> None:
        if not self._is_applying:
            self._is_applying = True
            self._services.start_or_halt("applying an image", self._apply())

    def _taken_out(self, name: Key) -> Uuid:
        """Take the change of one partition of a deleted topic out. Returns the topic's id."""
        topic = self._deleted[name[0]]
        topic.take(name[1])
        if not topic.left:
            del self._deleted[name[0]]
        return topic.id

    def take_now(self, name: Key) -> None:
        try:
            self._take_changes(name)
        except Exception as problem:
            self._services.halt(problem)
            raise

    def finish(self) -> None:
        """Apply all remaining changes at once."""
        while self:
            self.take_now(self._next())

    def _next(self) -> Key:
        for name in self._waiting:
            return name
        topic = next(iter(self._deleted))
        return topic, self._deleted[topic].next()

    def _take_changes(self, name: Key) -> None:
        if self._deleted and self._is_deleted(name):
            self._wait(TopicPartition(*name), self._taken_out(name), None, is_new=False)
        for change in self._waiting.pop(name, ()):
            self._take(*change)

    async def _apply(self) -> None:
        await pause()
        while self:
            self._take_changes(self._next())
            await pause(TAKEN_US)
        self._is_applying = False


class DeletedTopic:
    """The partitions of a deleted topic whose change waits: those from an index on, without those that a request needed first."""

    __slots__ = ("_count", "_next", "_taken", "id")

    def __init__(self, topic_id: Uuid, first: int, count: int) -> None:
        self.id = topic_id
        self._next = first
        self._count = count
        self._taken: set[int] = set()
        """Behind the next one."""

    @property
    def left(self) -> bool:
        return self._next < self._count

    def has(self, index: int) -> bool:
        return self._next <= index < self._count and index not in self._taken

    def next(self) -> int:
        return self._next

    def take(self, index: int) -> None:
        self._taken.add(index)
        while self._next in self._taken:
            self._taken.remove(self._next)
            self._next += 1


OPENED_AT_ONCE_MAX = 8
"""Logs that one image opens at once, at a millisecond each, while the request that changed the metadata waits."""
OPENED_A_SLICE = 2
"""Logs per slice. Once the files exist, opening a log takes a quarter of a millisecond, and requests wait meanwhile."""
SLICE_INTERVAL_MS = 1
"""Delay before the first slice, and after a slice whose files could not be created in advance."""
RETRY_INTERVAL_MS = 100
"""Delay if no worker is free. Until then a log is opened only by a request."""
SHORTAGE_INTERVAL_MS = 5_000
"""Delay between two attempts to create a log for which there was no space."""


class UnopenedLogs:
    """New partitions whose logs are not open yet. They are opened a few at a time, or at the first request.

    The queue is in order. A worker creates the files, because creating one may take a millisecond and would delay
    requests. As in Kafka, the reply to the creation of a large topic does not wait for every log. Unlike in Kafka, no
    request meets a partition that is not open. Bounded by the partitions of the image. Uses one worker at a time.

    - Only partitions that cannot have a log yet may wait here, because retention must not examine a log before its
      topic's settings are known.
    - A name with old entries in the checkpoints waits until they are rewritten. Requests for it get a retriable error.
    - So does a log that could not be created for lack of space or descriptors, until they are available.
    """

    __slots__ = ("_is_opening", "_logs", "_open", "_retries", "_services", "_short", "_tried", "_waiting")

    def __init__(
        self,
        services: PartitionServices,
        open_log: Callable[[TopicPartition, Uuid, PartitionRegistration], None],
    ) -> None:
        """`open_log` opens the log, and creates it if its files do not exist."""
        self._services = services
        self._logs = services.logs
        self._open = open_log
        self._waiting: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        self._is_opening = False
        self._short: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        """Partitions that lacked space."""
        self._tried: Key | None = None
        """The partition of `_short` whose attempt shows whether there is space."""
        self._retries = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting or name in self._short

    def add(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """Add a partition, or replace its image if it already waits."""
        self._short.pop(name, None)
        self._waiting[name] = topic_id, image
        if not self._is_opening:
            self._is_opening = True
            self._services.tasks.start("opening new logs", self._open_waiting())

    def add_short(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """Add a partition whose log had no space. One of all such partitions is tried at a time."""
        self._short[name] = topic_id, image
        if not self._retries:
            self._retries = True
            self._services.tasks.start("opening logs that lacked space", self._retry())

    async def _retry(self) -> None:
        try:
            while self._short:
                await self._services.tasks.sleep(SHORTAGE_INTERVAL_MS)
                if self._short:
                    self._tried, waiting = next(iter(self._short.items()))
                    self.add(TopicPartition(*self._tried), *waiting)
        finally:
            self._retries = False

    def discard(self, name: Key) -> None:
        self._waiting.pop(name, None)
        self._short.pop(name, None)

    def open_now(self, name: Key) -> bool:
        """Open a waiting partition. Returns False if it does not wait, or cannot be opened yet."""
        waiting = self._waiting.get(name)
        if waiting is None or not self._logs.may_make(TopicPartition(*name)):
            return False
        del self._waiting[name]
        self._open(TopicPartition(*name), *waiting)
        if name == self._tried and name not in self._short:
            # There is space again.
            for each, lacked in list(self._short.items()):
                self.add(TopicPartition(*each), *lacked)
        return True

    async def _open_waiting(self) -> None:
        delay_ms = SLICE_INTERVAL_MS
        try:
            while True:
                if delay_ms:
                    await self._services.tasks.sleep(delay_ms)
                if not self._waiting or self._logs.closed:
                    return
                delay_ms = await self._open_slice(list(islice(self._waiting, OPENED_A_SLICE)))
        finally:
            self._is_opening = False

    async def _open_slice(self, names: list[Key]) -> int:
        """Returns the delay before the next slice."""
        try:
            prepared = [self._prepare(name) for name in names]
        except LogRefused:
            for name in names:
                self.open_now(name)
            return SLICE_INTERVAL_MS
        clearing = self._logs.clear_names([TopicPartition(*name) for name in names])
        try:
            await self._services.workers.files.submit(partial(run_all, clearing, prepared))
        except Exception as error:
            if not (isinstance(error, OSError) or passes(error)):
                report("making the files of new partitions", error)
            if self._logs.closed:
                return 0
            logger.error("no worker made the files of new partitions: %s", error)
            for files in prepared:
                self._logs.discard(files)
            return RETRY_INTERVAL_MS
        if self._logs.closed:
            return 0
        if clearing is not None:
            clearing.finish()
        is_placed, delay_ms = True, SLICE_INTERVAL_MS
        for name, files in zip(names, prepared, strict=True):
            waiting = self._waiting.get(name)
            if waiting is None or waiting[0] != files.topic_id:
                self._logs.discard(files)
                continue
            if not self._logs.may_make(files.topic_partition):
                # The disk refused the checkpoints.
                self._logs.discard(files)
                is_placed, delay_ms = False, RETRY_INTERVAL_MS
                continue
            is_placed = self._logs.place(files, self._services.settings.log_config(name[0])) and is_placed
            self.open_now(name)
        return 0 if is_placed else delay_ms

    def _prepare(self, name: Key) -> Preparation:
        topic_id, image = self._waiting[name]
        return self._logs.prepare(TopicPartition(*name), topic_id, image.directory(self._services.node_id))


def run_all(clearing: Plan | None, prepared: list[Preparation]) -> None:
    """Run the checkpoint plan, then create the files. Blocks; for a worker."""
    if clearing is not None:
        clearing.run()
    for one in prepared:
        one.run()


GIVEN_AT_ONCE_MAX = 200
"""Partitions that get the settings of an image at once, at up to 30 us each."""
GIVEN_A_STEP = 200


class ConfigChanges:
    """New settings for the logs of partitions: for some of them at once, for the others in later steps.

    A cluster-wide setting concerns every partition of the node, and each topic with settings of its own needs a new
    LogConfig. Until its turn a partition keeps its former settings, as if this broker had received the image later.
    What the controller decides by the new settings must not be met by the old ones: a partition takes its settings
    before a role or an ISR (`first`). Bounded by the partitions of this node.
    """

    __slots__ = ("_advance", "_given", "_is_giving", "_services", "_waiting")

    def __init__(
        self,
        services: PartitionServices,
        advance: Callable[[Partition], None],
        given: Callable[[Partition], None] = lambda core: None,
    ) -> None:
        """`advance` looks whether a partition's high watermark advances by its new settings. `given` is called when it has
        them."""
        self._services = services
        self._advance = advance
        self._given = given
        self._waiting: dict[Partition, None] = {}
        self._is_giving = False

    def begin(self, cores: Sequence[Partition]) -> Sequence[Partition]:
        """Returns the partitions that have their settings now. The caller looks at their high watermarks when the roles of
        the same image are taken."""
        at_once, later = cores[:GIVEN_AT_ONCE_MAX], cores[GIVEN_AT_ONCE_MAX:]
        for core in at_once:
            self._waiting.pop(core, None)
        self._give(at_once)
        self._waiting.update(dict.fromkeys(later))
        if self._waiting and not self._is_giving:
            self._is_giving = True
            self._services.start_or_halt("applying settings", self._give_rest())
        return at_once

    def first(self, core: Partition) -> None:
        """Give this partition its settings now, if it waits for them."""
        if self._waiting and core in self._waiting:
            del self._waiting[core]
            self._give((core,))

    def gone(self, core: Partition) -> None:
        self._waiting.pop(core, None)

    def _give(self, cores: Iterable[Partition]) -> None:
        """Partitions of a topic share its settings."""
        configs: dict[str, LogConfig] = {}
        for core in cores:
            topic = core.topic_partition.topic
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = self._services.settings.log_config(topic)
            core.log.config = config
            self._given(core)

    async def _give_rest(self) -> None:
        waiting = self._waiting
        while waiting:
            await pause()
            # The last ones first: taking from the front of a large dictionary passes over everything taken before.
            some = [waiting.popitem()[0] for _ in range(min(len(waiting), GIVEN_A_STEP))]
            self._give(some)
            for core in some:
                self._advance(core)
        self._is_giving = False


VISITED_US = 4
ACTED_US = 100
"""Of a partition for which something is done."""


def visits(cores: Mapping[tuple[bytes, int], Partition], visit: Callable[[Partition], bool]) -> Work[None]:
    """A look at all partitions of this node. `visit` returns whether it has done something.

    Partitions come, go and change their roles during a walk. It visits those that were here when it began; one that
    has gone meanwhile leads nothing any more. Whoever needs a visit of those that came later begins another walk.
    """
    for core in list(cores.values()):
        yield ACTED_US if visit(core) else VISITED_US
