"""A partition manager and its ports: a clock and timers moved by the test, workers that run on request, real logs on a
memory disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log import replay
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.log_segment import LogSegment
from kafkacompat.log.opening import Preparation
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.memory import Freeing
from kafkacompat.partition._tests.services import partition_services, raise_it
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.fetch_session import FetchSessionCache
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import FileSlice, Log
from kafkacompat.records.batch import BatchHeader, build_batch, iterate_batches, stamp_offset_and_epoch
from kafkacompat.records.record import Record

NODE_ID = 1
LISTENER = "PLAINTEXT"


class WatchedLogs(LogManager):
    """The real logs on a memory disk, with a record of the calls."""

    def __init__(self, disk: MemoryDisk, time: HandTime, directories: int = 1) -> None:
        ids = [
            (f"/data/{name}", bytes(15) + bytes([0x77 + at])) for at, name in enumerate("abc"[:directories])
        ]
        for path, _ in ids:
            disk.make_directory(path)
        self.asked_as_new: dict[TopicPartition, bool] = {}
        self.placed: list[TopicPartition] = []
        self.discarded: list[TopicPartition] = []
        self.deleted: list[TopicPartition] = []
        super().__init__(disk, ids, LogConfig(), time)
        self.load_all()

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        self.asked_as_new[topic_partition] = is_new
        return super().get_or_create(topic_partition, topic_id, config, directory_id, is_new=is_new)

    def place(self, prepared: Preparation, config: LogConfig) -> bool:
        is_placed = super().place(prepared, config)
        if is_placed:
            self.placed.append(prepared.topic_partition)
        return is_placed

    def discard(self, prepared: Preparation) -> None:
        self.discarded.append(prepared.topic_partition)
        super().discard(prepared)

    def delete_later(self, topic_partition: TopicPartition) -> None:
        self.deleted.append(topic_partition)
        super().delete_later(topic_partition)


def failing(log: UnifiedLog | LogSegment, method: str, error: Exception) -> Callable[..., Any]:
    """A replacement for the method of that name that fails for this log, or segment, only."""
    right = getattr(type(log), method)

    def fail(self: Any, *arguments: Any) -> Any:
        if self is log:
            raise error
        return right(self, *arguments)

    return fail


def broker_epoch(broker_id: int) -> int:
    """A broker's epoch. No broker id is also an epoch."""
    return 1000 + broker_id


def broker_image(
    broker_id: int, *, fenced: bool = False, listeners: Sequence[str] = (LISTENER,)
) -> BrokerRegistration:
    return BrokerRegistration(
        id=broker_id,
        epoch=broker_epoch(broker_id),
        incarnation_id=bytes(16),
        endpoints={
            name: BrokerEndpoint(f"host-{broker_id}", 9000 + broker_id + 100 * position, 0)
            for position, name in enumerate(listeners)
        },
        features={"metadata.version": (7, 33), "transaction.version": (0, 2), "kraft.version": (0, 1)},
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
) -> PartitionRegistration:
    """A partition in that leader epoch. Its partition epoch is higher."""
    return PartitionRegistration(
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
        partition_epoch=3 * epoch,
    )


def topic_image(
    name: str, partitions: int | Mapping[int, PartitionRegistration] = 1, generation: int = 0
) -> TopicImage:
    """The id contains the name's bytes and the generation. Another generation is the recreated topic."""
    topic_id = (name.encode() + bytes(16))[:15] + bytes([generation + 128])
    if isinstance(partitions, int):
        partitions = {index: partition_image() for index in range(partitions)}
    return TopicImage(name, topic_id, dict(partitions))


def image_of(
    *topics: TopicImage,
    brokers: Sequence[BrokerRegistration] | None = None,
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


OPENED_MAX = 32
"""Logs that are open from the beginning."""


class LedPartitions:
    """A partition manager and fetch engine over real logs. The first ones are open and durable after construction."""

    def __init__(
        self,
        *topics: TopicImage,
        brokers: Sequence[BrokerRegistration] | None = None,
        slots: int = 1000,
        directories: int = 1,
    ) -> None:
        self.time = HandTime()
        self.workers = HandWorkers()
        self.disk = MemoryDisk()
        self.log_manager = WatchedLogs(self.disk, self.time, directories)
        self.log_configs: dict[str, LogConfig] = {}
        self.halt: Callable[[BaseException], None] = raise_it
        services = partition_services(
            NODE_ID,
            self.log_manager,
            self.time,
            self.workers,
            lambda topic: self.log_configs.get(topic, LogConfig()),
            halt=lambda problem: self.halt(problem),
        )
        self.manager = ReplicaManager(services)
        self.session_ids = iter(range(1, 10**6))
        self.sessions = FetchSessionCache(slots, lambda: next(self.session_ids), Freeing(services.tasks).free)
        self.engine = FetchEngine(services, self.manager, self.sessions, 57_671_680)
        self.image = MetadataImage()
        self.publish(image_of(*topics, brokers=brokers))
        named = ((topic.name, index) for topic in topics for index in topic.partitions)
        for partition in islice(named, OPENED_MAX):
            self.manager.core(partition)
        self.settle()

    def settle(self) -> None:
        """Run due timers and worker jobs until none is left."""
        self.time.advance(0)
        while self.workers.submitted:
            self.workers.run()
            self.time.advance(0)

    def found(self, asked: OffsetLookup | Deferred[OffsetLookup]) -> OffsetLookup:
        """The answer, after the worker threads have searched for it."""
        if isinstance(asked, OffsetLookup):
            return asked
        while not asked.done:
            assert self.workers.submitted
            self.workers.run()
        return asked.result()

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.manager.on_image(old, image)

    def log(self, topic: str = "t", partition: int = 0) -> UnifiedLog:
        return self.log_manager.logs[TopicPartition(topic, partition)]

    def batches(self, topic: str = "t", partition: int = 0) -> list[bytes]:
        """All batches in the log, committed or not."""
        log = self.log(topic, partition)
        read = log.read(log.log_start_offset, 1 << 30, log.log_end_offset, True).records
        data = read.read() if isinstance(read, FileSlice) else bytes(read)
        return [data[at.position : at.position + at.size] for at in iterate_batches(data)]

    def produce(
        self, topic: str = "t", partition: int = 0, *values: bytes, acks: int = 1, **options: Any
    ) -> Any:
        return self.manager.append(
            TopicPartition(topic, partition),
            batch_of(*(values or (b"value",)), now_ms=self.time.now_ms(), **options),
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
    image: MetadataImage, topic: str, partitions: Mapping[int, PartitionRegistration]
) -> MetadataImage:
    """The image with one topic's partitions replaced."""
    changed = replace(image.topics[topic], partitions=dict(partitions))
    return replace(
        image,
        topics={**image.topics, topic: changed},
        topics_by_id={**image.topics_by_id, changed.id: changed},
    )


PIECE = 10
"""Batches that a truncation reads in one piece, where a test counts them (`replayed_in_pieces`)."""


def replayed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the batches that truncations read to know what producers have written, in small pieces."""
    read: list[int] = []
    real = replay.apply_batch

    def counting(state: Any, header: BatchHeader, *rest: Any) -> None:
        read.append(header.base_offset)
        real(state, header, *rest)

    monkeypatch.setattr(replay, "apply_batch", counting)
    monkeypatch.setattr(replay, "REPLAYED_AT_ONCE", PIECE, raising=False)
    return read


def write_as_producer(log: Log, count: int) -> None:
    """Batches of one record, of an idempotent producer."""
    for number in range(count):
        batch = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=number)
        stamp_offset_and_epoch(batch, log.log_end_offset, 0)
        log.append_as_follower(bytes(batch), 0)
