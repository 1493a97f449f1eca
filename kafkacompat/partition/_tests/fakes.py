"""Stand-ins for the doors of a partition: a clock and timers moved by hand, a log in memory, a log manager over those."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from kafkacompat.api.context import OffsetLookup
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import (
    BrokerEndpoint,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OffsetAndEpoch, TopicPartition, Uuid
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.manager import PartitionManager
from kafkacompat.partition.sessions import FetchSessionCache
from kafkacompat.ports import (
    AbortedTransaction,
    AppendInfo,
    LogDirStatus,
    LogRead,
    LogRefused,
    ProducerStateEntry,
    TimestampOffset,
    Verification,
    WorkerPools,
)
from kafkacompat.records.batch import build_batch, stamp_offset_and_epoch
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode

NODE_ID = 1
LISTENER = "PLAINTEXT"


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class FakeTimer:
    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTimers:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.timers: list[FakeTimer] = []

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(monotonic_ms, callback)
        self.timers.append(timer)
        return timer

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> FakeTimer:
        return self.call_at(self.clock.ms + delay_ms, callback)

    def pending(self) -> list[FakeTimer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def advance(self, by_ms: int) -> None:
        end = self.clock.ms + by_ms
        while due := [timer for timer in self.pending() if timer.at_ms <= end]:
            first = min(due, key=lambda timer: timer.at_ms)
            self.timers.remove(first)
            self.clock.ms = max(self.clock.ms, first.at_ms)
            first.callback()
        self.clock.ms = end


class FakeWorkers:
    """Runs what it is given when told to."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.submitted.append((function, answer))
        return answer

    def run(self) -> None:
        submitted, self.submitted = self.submitted, []
        for function, answer in submitted:
            try:
                value = function()
            except OSError as error:
                answer.fail(error)
            else:
                answer.resolve(value)


@dataclass
class Stored:
    base_offset: int
    last_offset: int
    epoch: int
    max_timestamp_ms: int
    data: bytes


@dataclass
class FakeFlush:
    end_offset: int
    error: OSError | None

    def run(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class FakeSearch:
    log: MemoryLog
    timestamp_ms: int | None
    found: TimestampOffset | None = None
    abandoned: bool = False
    is_outdated: bool = False
    """The log has changed since it ran."""
    error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = self.log.search(self.timestamp_ms)
        except Exception as error:
            self.error = error


@dataclass
class MemoryLog:
    """ports.Log for tests: batches in a list, one segment each `segment_batches`."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    directory: str = "/logs/of-a-partition"
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    first_unstable_offset: int = -1
    segment_batches: int = 1000
    batches: list[Stored] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: list[ProducerStateEntry] = field(default_factory=list)
    fail_next: OSError | None = None
    flushed_to: int = 0
    fail_flush: OSError | None = None
    fail_search: Exception | None = None

    @property
    def last_stable_offset(self) -> int:
        unstable = self.first_unstable_offset
        if not 0 <= unstable < self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> Verification | None:
        return Verification(epoch, first_sequence, bumps_epochs, now_ms)

    def append_as_leader(self, batch: Any, leader_epoch: int, now_ms: int, terms: Any = None) -> AppendInfo:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        first = self.log_end_offset
        stamp_offset_and_epoch(batch.buffer, first, leader_epoch)
        last = first + batch.last_offset_delta
        self.batches.append(Stored(first, last, leader_epoch, batch.max_timestamp_ms, bytes(batch.buffer)))
        self.log_end_offset = last + 1
        self.assign_epoch_start(leader_epoch, first)
        return AppendInfo(first, last, batch.max_timestamp_ms if batch.log_append_time else -1)

    def append_as_follower(self, records: Any, leader_epoch: int) -> AppendInfo:
        raise AssertionError("no test follows")

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = min(offset, self.log_end_offset)

    def _index(self, offset: int) -> int:
        return max(0, bisect_right([stored.base_offset for stored in self.batches], offset) - 1)

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise LogRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
        readable = [b for b in self.batches[self._index(offset) :] if b.last_offset < upper_bound_offset]
        if not readable:
            return LogRead(b"")
        data = b"".join(stored.data for stored in readable)
        first = len(readable[0].data)
        truncated = max_bytes < first and not minimum_one_batch
        data = data[: max_bytes if truncated else max(max_bytes, first)]
        ends = accumulate(len(stored.data) for stored in readable)
        touched = sum(end < len(data) for end in ends)
        return LogRead(data, truncated, readable[touched].last_offset + 1)

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        return [one for one in self.aborted if one.first_offset < upper_bound_offset]

    def readable_bytes(self, offset: int, upper_bound_offset: int) -> int:
        return sum(
            len(b.data) for b in self.batches[self._index(offset) :] if b.last_offset < upper_bound_offset
        )

    def truncate_to(self, offset: int) -> None:
        raise AssertionError("no test truncates")

    def truncate_fully_and_start_at(self, offset: int) -> None:
        raise AssertionError("no test truncates")

    def increment_log_start_offset(self, offset: int) -> bool:
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        return True

    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def assign_epoch_start(self, epoch: int, start_offset: int) -> None:
        if self.latest_epoch() < epoch:
            self.epochs.append((epoch, start_offset))

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        if epoch == self.latest_epoch():
            return OffsetAndEpoch(self.log_end_offset, epoch)
        if epoch < 0 or epoch > self.latest_epoch():
            return OffsetAndEpoch(-1, -1)
        after = next(start for known, start in self.epochs if known > epoch)
        return OffsetAndEpoch(
            after, max((known for known, _ in self.epochs if known <= epoch), default=epoch)
        )

    def epoch_for_offset(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)

    def begin_lookup(self, timestamp_ms: int | None) -> FakeSearch:
        return FakeSearch(self, timestamp_ms)

    def finish_lookup(self, lookup: FakeSearch) -> bool:
        if lookup.error is not None:
            raise lookup.error
        return not lookup.is_outdated

    def search(self, timestamp_ms: int | None) -> TimestampOffset | None:
        if self.fail_search is not None:
            raise self.fail_search
        if not self.batches:
            return None
        if timestamp_ms is None:
            timestamp_ms = max(stored.max_timestamp_ms for stored in self.batches)
        for stored in self.batches:
            if stored.max_timestamp_ms >= timestamp_ms and stored.last_offset >= self.log_start_offset:
                return TimestampOffset(stored.max_timestamp_ms, stored.base_offset, stored.epoch)
        return None

    def size_bytes(self) -> int:
        return sum(len(stored.data) for stored in self.batches)

    def segment_base_offset(self, offset: int) -> int:
        if not self.batches:
            return 0
        index = self._index(offset) if offset < self.log_end_offset else len(self.batches)
        first = index // self.segment_batches * self.segment_batches
        return self.batches[first].base_offset if first < len(self.batches) else self.log_end_offset

    def active_producers(self) -> list[ProducerStateEntry]:
        return self.producers

    is_anchored = True

    def begin_flush(self) -> FakeFlush:
        return FakeFlush(self.log_end_offset, self.fail_flush)

    def finish_flush(self, flush: FakeFlush) -> None:
        self.flushed_to = flush.end_offset


@dataclass
class FakePreparation:
    topic_partition: TopicPartition
    topic_id: Uuid
    made: bool = False

    def run(self) -> None:
        self.made = True


@dataclass
class FakeClearing:
    manager: FakeLogManager
    names: set[TopicPartition]
    has_run: bool = False

    def run(self) -> None:
        self.has_run = True

    def finish(self) -> None:
        assert self.has_run
        if not self.manager.refuses_to_clear:
            self.manager.spoken_of -= self.names


class FakeLogManager:
    closed = False

    def __init__(self) -> None:
        self.placed: list[TopicPartition] = []
        self.discarded: list[TopicPartition] = []
        self.refuses_to_prepare = False
        self.refuses_to_place = False
        self.has_offline_directory = False
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.deleted: list[TopicPartition] = []
        self.broken: set[TopicPartition] = set()
        self.failed: list[tuple[TopicPartition, OSError]] = []
        self.asked_as_new: dict[TopicPartition, bool] = {}
        self.spoken_of: set[TopicPartition] = set()
        """Names of logs that went, of which checkpoints still speak."""
        self.refuses_to_clear = False
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda names: None

    def get(self, topic_partition: TopicPartition) -> MemoryLog | None:
        return self.logs.get(topic_partition)

    def log_failed(self, log: object, error: OSError) -> None:
        for topic_partition in [name for name, each in self.logs.items() if each is log]:
            self.partition_failed(topic_partition, error)

    def partition_failed(self, topic_partition: TopicPartition, error: OSError) -> None:
        self.failed.append((topic_partition, error))
        if error.errno == errno.EIO:
            self.logs.pop(topic_partition)
            self.broken.add(topic_partition)
            self.on_offline([topic_partition])

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> MemoryLog:
        self.asked_as_new[topic_partition] = is_new
        if topic_partition in self.broken:
            raise OSError(5, "the disk is broken")
        if topic_partition not in self.logs:
            assert self.may_make(topic_partition)
            self.logs[topic_partition] = MemoryLog(topic_partition, topic_id, config)
        return self.logs[topic_partition]

    def may_have(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.logs or self.has_offline_directory

    def may_make(self, topic_partition: TopicPartition) -> bool:
        return topic_partition not in self.spoken_of

    def clear_names(self, names: Sequence[TopicPartition]) -> FakeClearing | None:
        stale = self.spoken_of & set(names)
        return FakeClearing(self, stale) if stale else None

    def when_true(self, log: object) -> Deferred[None]:
        return Deferred.of(None)

    def prepare(
        self, topic_partition: TopicPartition, topic_id: Uuid, directory_id: Uuid | None = None
    ) -> FakePreparation:
        if self.refuses_to_prepare:
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR)
        return FakePreparation(topic_partition, topic_id)

    def place(self, prepared: FakePreparation, config: LogConfig) -> bool:
        assert prepared.made
        name = prepared.topic_partition
        if self.refuses_to_place:
            return False
        assert name not in self.logs
        assert self.may_make(name)
        self.placed.append(name)
        self.logs[name] = MemoryLog(name, prepared.topic_id, config)
        return True

    def discard(self, prepared: FakePreparation) -> None:
        self.discarded.append(prepared.topic_partition)

    def delete_later(self, topic_partition: TopicPartition) -> None:
        self.deleted.append(topic_partition)
        del self.logs[topic_partition]

    def log_dirs(self) -> list[LogDirStatus]:
        return [
            LogDirStatus("/data/a", bytes(15) + b"\x77", True, 1000, 400, dict(self.logs)),
            LogDirStatus("/data/b", bytes(15) + b"\x78", False, -1, -1),
        ]


def broker_image(
    broker_id: int, *, fenced: bool = False, listeners: Sequence[str] = (LISTENER,)
) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=broker_id,
        incarnation_id=bytes(16),
        endpoints={
            name: BrokerEndpoint(f"host-{broker_id}", 9000 + broker_id + 100 * position, 0)
            for position, name in enumerate(listeners)
        },
        features={"metadata.version": (7, 30), "transaction.version": (0, 2), "kraft.version": (0, 1)},
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
    )


def partition_image(
    *,
    replicas: Sequence[int] = (NODE_ID,),
    isr: Sequence[int] | None = None,
    leader: int = NODE_ID,
    epoch: int = 0,
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(replicas),
        directories=(bytes(16),) * len(replicas),
        isr=tuple(replicas if isr is None else isr),
        removing_replicas=(),
        adding_replicas=(),
        eligible_leader_replicas=(),
        last_known_elr=(),
        leader=leader,
        leader_recovering=False,
        leader_epoch=epoch,
        partition_epoch=epoch,
    )


def topic_image(
    name: str, partitions: int | Mapping[int, PartitionImage] = 1, generation: int = 0
) -> TopicImage:
    """The id is the name's bytes and the generation: another generation is the topic made anew."""
    topic_id = (name.encode() + bytes(16))[:15] + bytes([generation + 128])
    if isinstance(partitions, int):
        partitions = {index: partition_image() for index in range(partitions)}
    return TopicImage(name, topic_id, dict(partitions))


def image_of(
    *topics: TopicImage,
    brokers: Sequence[BrokerImage] | None = None,
    configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None,
) -> MetadataImage:
    return MetadataImage(
        offset=100,
        epoch=1,
        features={"metadata.version": 30, "transaction.version": 2, "group.version": 1},
        brokers={broker.id: broker for broker in (brokers or (broker_image(NODE_ID),))},
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.id: topic for topic in topics},
        configs=configs or {},
    )


class World:
    """A partition manager and fetch engine over fakes."""

    def __init__(
        self,
        *topics: TopicImage,
        brokers: Sequence[BrokerImage] | None = None,
        slots: int = 1000,
        log_manager: Any = None,
    ) -> None:
        """Over `log_manager`, which may be a real one."""
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.workers = FakeWorkers()
        self.log_manager = log_manager or FakeLogManager()
        self.log_configs: dict[str, LogConfig] = {}
        self.manager = PartitionManager(
            NODE_ID,
            self.log_manager,
            self.clock,
            self.timers,
            WorkerPools.of_one(self.workers),
            lambda topic: self.log_configs.get(topic, LogConfig()),
        )
        self.session_ids = iter(range(1, 10**6))
        self.sessions = FetchSessionCache(slots, lambda: next(self.session_ids))
        self.fetch_max_bytes = 57_671_680
        self.engine = FetchEngine(
            self.manager, self.clock, self.timers, self.sessions, lambda: self.fetch_max_bytes
        )
        self.image = MetadataImage()
        self.publish(image_of(*topics, brokers=brokers))

    def found(self, asked: OffsetLookup | Deferred[OffsetLookup]) -> OffsetLookup:
        """The answer, once the worker threads have searched for it."""
        if isinstance(asked, OffsetLookup):
            return asked
        while not asked.done:
            assert self.workers.submitted
            self.workers.run()
        return asked.result()

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.manager.on_image(old, image)

    def log(self, topic: str = "t", partition: int = 0) -> MemoryLog:
        return self.log_manager.logs[TopicPartition(topic, partition)]

    def produce(
        self, topic: str = "t", partition: int = 0, *values: bytes, acks: int = 1, **options: Any
    ) -> Any:
        return self.manager.append(
            TopicPartition(topic, partition),
            batch_of(*(values or (b"value",)), now_ms=self.clock.ms, **options),
            acks,
            13,
            False,
        )


def batch_of(
    *values: bytes, now_ms: int = 1_700_000_000_000, key: bytes | None = b"k", **options: Any
) -> bytearray:
    records = [
        Record(offset_delta=index, timestamp_ms=now_ms, key=key, value=value, headers=())
        for index, value in enumerate(values)
    ]
    return build_batch(records, **options)


def with_partitions(
    image: MetadataImage, topic: str, partitions: Mapping[int, PartitionImage]
) -> MetadataImage:
    """The image with one topic's partitions replaced."""
    changed = replace(image.topics[topic], partitions=dict(partitions))
    return replace(
        image,
        topics={**image.topics, topic: changed},
        topics_by_id={**image.topics_by_id, changed.id: changed},
    )
