"""Follows the result topics with a consumer in a worker thread, and passes records to trio in bounded batches.

There is no group: each look at the cluster gives the topics to follow. Compacted topics are read from their beginning.
If a topic was deleted, or deleted and created again, the reader says so, so that no old rows stay. No rows and no
views.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import trio
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkacompat.console.clients import consumer_settings, quiet_logger
from kafkacompat.console.core.result_topics import RESULT_TOPICS
from kafkacompat.console.core.results import ResultRecord
from kafkacompat.console.core.snapshot import Snapshot, TopicSeen
from kafkacompat.security.cluster_address import ClusterAddress

MAX_BATCH_RECORDS = 500
MAX_WAITING_BATCHES = 8
POLL_S = 0.25

Place = tuple[str, int]


@dataclass(slots=True)
class Batch:
    """The result of one poll. forgotten: topics whose rows are no longer valid. positions: the next offset of each partition."""

    forgotten: list[str] = field(default_factory=list)
    records: list[ResultRecord] = field(default_factory=list)
    positions: dict[Place, int] = field(default_factory=dict)


class ResultReader:
    """One consumer of all result topics. `follow` is called in trio; everything else runs in the thread."""

    __slots__ = ("_bootstrap", "_followed", "_ids", "_positions", "_wanted")

    def __init__(self, bootstrap: ClusterAddress) -> None:
        self._bootstrap = bootstrap
        # Replaced as a whole and never changed, so the thread reads it without a lock.
        self._wanted: dict[str, TopicSeen] | None = None
        self._ids: dict[str, str] = {}
        self._followed: set[Place] = set()
        self._positions: dict[Place, int] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Follow exactly the result topics in this snapshot."""
        self._wanted = {topic.name: topic for topic in snapshot.topics if topic.name in RESULT_TOPICS}

    async def run(self, batches: trio.MemorySendChannel[Batch]) -> None:
        """Read until cancelled. The thread waits while MAX_WAITING_BATCHES batches are not folded yet."""
        async with batches:
            await trio.to_thread.run_sync(self._read, batches, limiter=trio.CapacityLimiter(1))

    def _read(self, batches: trio.MemorySendChannel[Batch]) -> None:
        consumer = self._new_consumer()
        try:
            while True:
                trio.from_thread.check_cancelled()
                batch = Batch()
                wanted = self._wanted
                if wanted is not None:
                    batch.forgotten = self._forget(wanted)
                    if batch.forgotten:
                        # The library keeps what it knows about a topic (leader epochs, that it was deleted) for as
                        # long as the client lives. It would not read a new topic with the same name.
                        consumer.close()
                        consumer = self._new_consumer()
                    self._follow(consumer, wanted)
                for message in consumer.consume(MAX_BATCH_RECORDS, POLL_S):
                    _take(message, batch)
                self._positions |= batch.positions
                if batch.forgotten or batch.records or batch.positions:
                    trio.from_thread.run(batches.send, batch)
        finally:
            consumer.close()

    def _new_consumer(self) -> Consumer:
        self._followed = set()
        while True:
            trio.from_thread.check_cancelled()
            try:
                return Consumer(consumer_settings(self._bootstrap), logger=quiet_logger())
            except KafkaException:
                # The system gives the library no thread or no descriptor. That passes.
                time.sleep(POLL_S)

    def _forget(self, wanted: dict[str, TopicSeen]) -> list[str]:
        """Return the topics that were deleted, or deleted and created again, and drop their state."""
        known = self._ids.items()
        lost = [name for name, topic_id in known if name not in wanted or wanted[name].topic_id != topic_id]
        for name in lost:
            del self._ids[name]
        self._positions = {place: at for place, at in self._positions.items() if place[0] not in lost}
        return lost

    def _follow(self, consumer: Consumer, wanted: dict[str, TopicSeen]) -> None:
        added = []
        for name, topic in wanted.items():
            self._ids.setdefault(name, topic.topic_id)
            for place, start in starts(topic).items():
                if place not in self._followed:
                    self._followed.add(place)
                    added.append(TopicPartition(*place, self._positions.get(place, start)))
        if added:
            consumer.incremental_assign(added)


def starts(topic: TopicSeen) -> dict[Place, int]:
    """Return the first offset of each readable partition: the beginning, or the given number of records before the end."""
    tail = RESULT_TOPICS[topic.name].tail_records
    found: dict[Place, int] = {}
    for partition in topic.partitions:
        if tail is None:
            found[topic.name, partition.partition] = OFFSET_BEGINNING
        elif partition.latest is not None and partition.earliest is not None:
            found[topic.name, partition.partition] = max(partition.earliest, partition.latest - tail)
    return found


def _take(message: Message, batch: Batch) -> None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    error = message.error()
    if topic is None or partition is None or offset is None:
        if error is not None and error.fatal():
            raise KafkaException(error)
        return
    if error is not None:
        # Other errors of a partition (its leader is away, it was deleted) pass, or the next look reports them.
        if error.code() == KafkaError._PARTITION_EOF:
            batch.positions[topic, partition] = offset
        return
    _kind, timestamp_ms = message.timestamp()
    key, value = message.key(), message.value()
    batch.records.append(
        ResultRecord(topic, partition, offset, max(0, timestamp_ms), _bytes(key), _bytes(value))
    )
    batch.positions[topic, partition] = offset + 1


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
