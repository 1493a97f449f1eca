"""Every partition this node hosts: appends, waits for replication, lookups, and the roles each new image brings.

The shell around `core`: it calls logs, parks requests and wakes them. Knows no request, response or version. Fetches
are fetch.py's; it is told of every advance through `watch`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.api.context import OffsetLookup, ProduceResult
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition, Uuid
from kafkacompat.partition.arrivals import OPENED_AT_ONCE_MAX, Arrivals
from kafkacompat.partition.core import PartitionCore
from kafkacompat.partition.flushes import Flushes
from kafkacompat.partition.lookup import delete_to, look_up
from kafkacompat.partition.waiters import Waiter, WaitList
from kafkacompat.ports import LogRefused
from kafkacompat.records.validate import validate_produce
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import PartitionImage
    from kafkacompat.ports import Buffer, Clock, Log, LogManager, Timers, Workers

logger = logging.getLogger(__name__)

NEVER_FLUSH = 2**63 - 1
FIRST_VERSION_WITH_ZSTD = 7
ALL_REPLICAS = -1
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals of a produce that, as in Kafka, do not tell where the log begins."""
Key = tuple[str, int]


class ParkedReplication(Waiter):
    """Appends that wait until the high watermark has passed them, or for their timeout (D14: the data stays)."""

    __slots__ = ("answer", "ends", "epochs", "errors")

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__()
        self.ends = dict(ends)
        self.epochs: dict[TopicPartition, int] = {}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.answer: Deferred[Mapping[TopicPartition, ErrorCode]] = Deferred()

    def expire(self) -> None:
        self.answer.resolve(
            {partition: self.errors.get(partition, ErrorCode.REQUEST_TIMED_OUT) for partition in self.ends}
        )


class PartitionManager:
    """PartitionService of api/context. All in the loop's thread."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        log_config: Callable[[str], LogConfig],
    ) -> None:
        self.node_id = node_id
        self.image = MetadataImage()
        self.by_name: dict[Key, PartitionCore] = {}
        self.by_id: dict[tuple[Uuid, int], PartitionCore] = {}
        self._flushes = Flushes(workers, log_manager.partition_failed)
        self._log_manager = log_manager
        self._clock = clock
        self._log_config = log_config
        self._replications: WaitList[ParkedReplication] = WaitList(clock, timers)
        self._watchers: list[Callable[[PartitionCore], None]] = []
        self._held: dict[Key, PartitionCore] | None = None
        self._arrivals = Arrivals(
            timers, workers, log_manager, log_config, partial(self._take_role, is_new=True)
        )
        self._offline: set[TopicPartition] = set()
        log_manager.on_offline = self._lost

    # Appends

    def append(
        self, partition: TopicPartition, records: Buffer, acks: int, api_version: int, internal_allowed: bool
    ) -> ProduceResult:
        """Validate and append one partition's records; the refusal, if any, is in the result."""
        core = self.by_name.get(partition)
        if core is None:
            core = self.core(partition)
        if partition[0] in INTERNAL_TOPICS and not internal_allowed and self._is_known(partition):
            return ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if core is None or not core.is_leader:
            return self._not_led(partition, core)
        if acks == ALL_REPLICAS and not core.has_min_isr():
            return ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = core.log
        now_ms = self._clock.now_ms()
        try:
            batch = validate_produce(
                records, log.config, now_ms, zstd_allowed=api_version >= FIRST_VERSION_WITH_ZSTD
            )
            info = log.append_as_leader(batch, core.leader_epoch, now_ms)
        except LogRefused as refused:
            return ProduceResult(
                refused.code,
                log_start_offset=-1 if refused.code in WITHOUT_LOG_START else log.log_start_offset,
                error_message=refused.message,
                record_errors=refused.record_errors,
            )
        except OSError as error:
            self._log_manager.partition_failed(core.topic_partition, error)
            return ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR)
        if not info.duplicate:
            if log.config.flush_messages != NEVER_FLUSH:
                self._flushes.appended(core, info.last_offset - info.first_offset + 1)
            if core.maybe_advance_high_watermark():
                self._advanced(core)
        return ProduceResult(
            ErrorCode.NONE,
            info.first_offset,
            info.last_offset,
            info.log_append_time_ms,
            log.log_start_offset,
        )

    def hold_wakeups(self) -> None:
        """Until `release_wakeups`: a fetch that waits for several partitions of one produce sees them all at once."""
        self._held = {}

    def release_wakeups(self) -> None:
        held, self._held = self._held, None
        for core in (held or {}).values():
            self._advanced(core)

    def follower_fetched(self, core: PartitionCore, replica_id: int, offset: int) -> None:
        """A follower asks for what begins at offset: it has the rest."""
        core.observe_follower(replica_id, offset)
        if core.maybe_advance_high_watermark():
            self._advanced(core)

    def watch(self, watcher: Callable[[PartitionCore], None]) -> None:
        """Call back when a partition's high watermark advanced, or its role changed or ended."""
        self._watchers.append(watcher)

    def when_replicated(
        self, ends: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        waiter: ParkedReplication | None = None
        for partition, end in ends.items():
            core = self.by_name.get(partition)
            if core is not None and core.is_leader and core.log.high_watermark >= end and core.has_min_isr():
                continue
            if waiter is None:
                waiter = ParkedReplication(ends)
            if core is not None:
                waiter.epochs[partition] = core.leader_epoch
        if waiter is None:
            return None
        if self._settle(waiter) or timeout_ms <= 0 or self._replications.is_full():
            waiter.expire()
        else:
            self._replications.park(waiter, ends, timeout_ms)
        return waiter.answer

    def when_flushed(
        self, partitions: Mapping[TopicPartition, int]
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """When the syncs that flush.messages asked for on these partitions are done; None when there are none."""
        return self._flushes.when_flushed(partitions)

    # Lookups

    def core(self, partition: Key) -> PartitionCore | None:
        """The partition, its log opened now if nobody has asked for it before; None when it is not here."""
        core = self.by_name.get(partition)
        if core is None and self._arrivals and self._arrivals.open_now(partition):
            return self.by_name.get(partition)
        return core

    def core_by_id(self, topic_id: Uuid, partition: int) -> PartitionCore | None:
        """As `core`, for clients that name topics by id."""
        core = self.by_id.get((topic_id, partition))
        if core is None and self._arrivals:
            topic = self.image.topics_by_id.get(topic_id)
            return None if topic is None else self.core((topic.name, partition))
        return core

    def log(self, partition: TopicPartition) -> Log | None:
        core = self.core(partition)
        return core.log if core is not None and core.is_leader else None

    def leader_error(self, partition: TopicPartition, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE when this node leads the partition in that epoch, else what a client is told."""
        core = self.core(partition)
        return self._absent(partition) if core is None else core.check_leader(current_leader_epoch)

    def list_offset(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        read_committed: bool,
        current_leader_epoch: int,
        replica_id: int,
    ) -> OffsetLookup:
        core = self.core(partition)
        if core is None:
            return OffsetLookup(self._absent(partition))
        return look_up(core, timestamp_ms, read_committed, current_leader_epoch, replica_id)

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        error = self.leader_error(partition, current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error, -1, -1
        found = self.by_name[partition].log.end_offset_for_epoch(leader_epoch)
        return ErrorCode.NONE, found.epoch, found.offset

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, tuple[ErrorCode, int]]]:
        answers: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        for partition, offset in offsets.items():
            core = self.core(partition)
            if partition.topic in INTERNAL_TOPICS and self._is_known(partition):
                answers[partition] = (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
            elif core is None:
                answers[partition] = (self._absent(partition), -1)
            else:
                answers[partition] = delete_to(core, offset)
        return Deferred.of(answers)

    # Images

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take the roles of a new image: logs made and dropped, leaders and followers, settings."""
        self.image = new
        opened = 0
        if old.topics_by_id is not new.topics_by_id:
            for topic_id, topic in old.topics_by_id.items():
                if topic_id not in new.topics_by_id:
                    for index in sorted(topic.partitions):
                        self._drop(TopicPartition(topic.name, index), topic_id)
            for name, topic in new.topics.items():
                before = old.topics_by_id.get(topic.id)
                if before is not topic:
                    known = () if before is None else before.partitions
                    for index, partition in topic.partitions.items():
                        if self.node_id in partition.replicas:
                            # What the first image brings may have been here before this start.
                            is_new = old.offset >= 0 and index not in known
                            key = TopicPartition(name, index)
                            if key in self._arrivals or (is_new and opened >= OPENED_AT_ONCE_MAX):
                                self._arrivals.add(key, topic.id, partition)
                            else:
                                self._take_role(key, topic.id, partition, is_new)
                                opened += is_new
                        else:
                            self._drop(TopicPartition(name, index), topic.id)
        if old.configs is not new.configs:
            self._reconfigure(old, new)

    def _take_role(self, name: TopicPartition, topic_id: Uuid, image: PartitionImage, is_new: bool) -> None:
        try:
            core = self.by_id.get((topic_id, name.partition))
            if core is None:
                log = self._log_manager.get_or_create(
                    name, topic_id, self._log_config(name.topic), is_new=is_new
                )
                core = PartitionCore(self.node_id, name, topic_id, log)
                self.by_name[name] = self.by_id[topic_id, name.partition] = core
            changed = core.become(image)
        except (OSError, LogRefused) as error:
            logger.error("the log of %s cannot be opened: %s", name, error)
            self._drop_core(name, topic_id)
            self._offline.add(name)
            return
        self._offline.discard(name)
        if core.maybe_advance_high_watermark() or changed:
            self._advanced(core)

    def _drop(self, name: TopicPartition, topic_id: Uuid) -> None:
        self._offline.discard(name)
        self._arrivals.discard(name)
        core = self._drop_core(name, topic_id)
        if core is not None:
            self._log_manager.delete_later(name)
            self._advanced(core)

    def _lost(self, names: Sequence[TopicPartition]) -> None:
        """Their directory is offline: they are answered KAFKA_STORAGE_ERROR from now on."""
        for name in names:
            core = self.by_name.get(name)
            self._offline.add(name)
            if core is not None:
                self._drop_core(name, core.topic_id)
                self._advanced(core)

    def _drop_core(self, name: TopicPartition, topic_id: Uuid) -> PartitionCore | None:
        core = self.by_id.pop((topic_id, name.partition), None)
        if core is None:
            return None
        core.is_leader = False
        if self.by_name.get(name) is core:
            del self.by_name[name]
        return core

    def _reconfigure(self, old: MetadataImage, new: MetadataImage) -> None:
        """Give logs their settings anew where a layer below or of the topic changed."""
        changed = {
            key
            for key in old.configs.keys() | new.configs.keys()
            if old.configs.get(key) is not new.configs.get(key)
        }
        if any(kind == ConfigResourceType.BROKER for kind, _ in changed):
            topics = {core.topic_partition.topic for core in self.by_id.values()}
        else:
            topics = {name for kind, name in changed if kind == ConfigResourceType.TOPIC}
        for topic in sorted(topics):
            image = new.topics.get(topic)
            if image is None:
                continue
            config = self._log_config(topic)
            for index in image.partitions:
                core = self.by_name.get((topic, index))
                if core is not None:
                    core.log.config = config
                    if core.maybe_advance_high_watermark():
                        self._advanced(core)

    # Wake-ups

    def _advanced(self, core: PartitionCore) -> None:
        if self._held is not None:
            self._held[core.topic_partition] = core
            return
        for waiter in self._replications.on(core.topic_partition):
            if self._settle(waiter):
                self._replications.remove(waiter)
                waiter.expire()
        for watcher in self._watchers:
            watcher(core)

    def _settle(self, waiter: ParkedReplication) -> bool:
        """Note which of its partitions are decided; True when all are."""
        errors = waiter.errors
        for partition, end in waiter.ends.items():
            if partition in errors:
                continue
            core = self.by_name.get(partition)
            if core is None or core.check_leader(waiter.epochs.get(partition, -1)) is not ErrorCode.NONE:
                errors[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif core.log.high_watermark >= end:
                errors[partition] = (
                    ErrorCode.NONE if core.has_min_isr() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                )
        return len(errors) == len(waiter.ends)

    # Refusals

    def _not_led(self, partition: Key, core: PartitionCore | None) -> ProduceResult:
        if core is None:
            return ProduceResult(self._absent(partition))
        return ProduceResult(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=core.leader, leader_epoch=core.leader_epoch
        )

    def _is_known(self, partition: Key) -> bool:
        topic = self.image.topics.get(partition[0])
        return topic is not None and partition[1] in topic.partitions

    def _absent(self, partition: Key) -> ErrorCode:
        """Why a partition is not here: unknown, another node's, or its log cannot be opened."""
        if not self._is_known(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
