"""The queue workload: producers send, and consumers poll assigned or subscribed partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError as KafkaPythonError

from interop_tests.harness.epochs import Epochs
from interop_tests.harness.kafka_python import close_at_once
from interop_tests.histories.clients import (
    OF_A_GROUP,
    OPERATION_TIMEOUT_S,
    Client,
    StartAgain,
    Surroundings,
    closing,
    name_of,
)
from interop_tests.histories.history import COMMITTED, UNCOMMITTED, Completion

TOPIC = "queue"
PARTITIONS = 4
GROUP = "queue-readers"
COORDINATED = ((OF_A_GROUP, GROUP),)
SENT_AT_ONCE = 12
POLLED_AT_ONCE = 100
POLL_S = 0.2
ASSIGNED_ANEW = 0.02
"""The probability that a poll starts from another position."""
LOOK_BACK = 400
"""The maximum number of records to go back."""


class Sender(Client):
    """Sends a few records at a time, and waits until each is acknowledged or its outcome is unknown."""

    def send(self, process: str, write: Callable[[list[list[Any]]], None]) -> None:
        items: list[list[Any]] = [
            [name_of(TOPIC, self.chance.randrange(PARTITIONS)), next(self._all.numbers), None]
            for _ in range(self.chance.randint(1, SENT_AT_ONCE))
        ]
        with self.recorder.operation(process, "send", [item[:2] for item in items]) as done:
            done.value = items
            write(items)
            if any(item[2] is None for item in items):
                raise StartAgain
            done.ok(items)


class ConfluentSender(Sender):
    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        epochs = Epochs()
        settings = self.librdkafka(
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            message_timeout_ms=int(OPERATION_TIMEOUT_S * 1000),
        )
        producer = Producer({**settings, **epochs.settings()})

        def write(items: list[list[Any]]) -> None:
            for item in items:
                deliver(producer, TOPIC, item)
            producer.flush(2 * OPERATION_TIMEOUT_S)

        def end() -> None:
            producer.purge()
            if epochs.renumbered(producer):
                with self.recorder.operation(process, "renumbered") as done:
                    done.ok(None)

        with closing(producer, end):
            yield lambda: self.send(process, write)


class KafkaPythonSender(Sender):
    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        producer = KafkaProducer(
            **self.kafka_python(
                enable_idempotence=True,
                acks="all",
                delivery_timeout_ms=int(OPERATION_TIMEOUT_S * 1000),
                request_timeout_ms=5000,
                max_block_ms=int(OPERATION_TIMEOUT_S * 1000),
            )
        )

        def write(items: list[list[Any]]) -> None:
            futures = []
            for item in items:
                partition = int(item[0].rpartition("-")[2])
                futures.append((producer.send(TOPIC, b"%d" % item[1], partition=partition), item))
            for future, item in futures:
                try:
                    item[2] = future.get(2 * OPERATION_TIMEOUT_S).offset
                except KafkaPythonError:
                    continue

        with closing(producer, lambda: close_at_once(producer)):
            yield lambda: self.send(process, write)


def deliver(producer: Producer, topic: str, item: list[Any]) -> None:
    """Produce `[partition, value, None]`. The None becomes the offset when the record is acknowledged."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            item[2] = message.offset()

    partition = int(item[0].rpartition("-")[2])
    producer.produce(topic, b"%d" % item[1], partition=partition, on_delivery=delivered)


def poll_into(consumer: Consumer, entries: list[list[Any]], count: int, seconds: float) -> None:
    """Add up to this number of records, until no record arrives for a while or the records end."""
    deadline = time.monotonic() + seconds
    for _ in range(count):
        message = consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None:
            return
        if message.error() is None:
            name = name_of(message.topic(), message.partition())
            entries.append([name, message.offset(), int(message.value())])


class AssignedReader(Client):
    """Polls every partition of a topic, now and then from another position."""

    def __init__(
        self, surroundings: Surroundings, name: str, topic: str, partitions: int, isolation: str = UNCOMMITTED
    ) -> None:
        self.topic, self.partitions, self.isolation = topic, partitions, isolation
        super().__init__(surroundings, name)

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = Consumer(
            self.librdkafka(
                group_id=self.name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=self.isolation,
            )
        )
        latest = dict.fromkeys(range(self.partitions), 0)

        def assign(positions: dict[int, int]) -> None:
            consumer.assign([TopicPartition(self.topic, *position) for position in positions.items()])

        def poll() -> list[list[Any]]:
            entries: list[list[Any]] = []
            poll_into(consumer, entries, POLLED_AT_ONCE, POLL_S)
            return entries

        with closing(consumer, consumer.close):
            self._assign(process, assign, latest)
            yield lambda: self._operate_once(process, assign, poll, latest)

    def _operate_once(
        self,
        process: str,
        assign: Callable[[dict[int, int]], None],
        poll: Callable[[], list[list[Any]]],
        latest: dict[int, int],
    ) -> None:
        if self.chance.random() < ASSIGNED_ANEW:
            self._assign(
                process,
                assign,
                {number: max(0, end - self.chance.randrange(LOOK_BACK)) for number, end in latest.items()},
            )
        with self.recorder.operation(process, "poll", self.isolation) as done:
            entries = poll()
            done.ok(entries)
        for name, offset, _ in entries:
            latest[int(name.rpartition("-")[2])] = offset + 1

    def _assign(
        self, process: str, assign: Callable[[dict[int, int]], None], positions: dict[int, int]
    ) -> None:
        named = {name_of(self.topic, number): position for number, position in positions.items()}
        with self.recorder.operation(process, "assign") as done:
            assign(positions)
            done.ok(named)


class KafkaPythonReader(AssignedReader):
    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = KafkaConsumer(
            **self.kafka_python(
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level=self.isolation,
            )
        )
        latest = dict.fromkeys(range(self.partitions), 0)

        def assign(positions: dict[int, int]) -> None:
            places = {KafkaPythonPartition(self.topic, number): each for number, each in positions.items()}
            consumer.assign(list(places))
            for place, position in places.items():
                consumer.seek(place, position)

        def poll() -> list[list[Any]]:
            found = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=POLLED_AT_ONCE)
            return [
                [name_of(place.topic, place.partition), each.offset, int(each.value)]
                for place, records in found.items()
                for each in records
            ]

        with closing(consumer, lambda: consumer.close(autocommit=False)):
            self._assign(process, assign, latest)
            yield lambda: self._operate_once(process, assign, poll, latest)


class Subscriber(Client):
    """A member of a group that polls its assigned partitions."""

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        consumer = Consumer(
            self.librdkafka(
                group_id=GROUP,
                session_timeout_ms=6000,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=500,
            )
        )
        entries: list[list[Any]] = []
        subscribe(consumer, TOPIC, entries)

        def poll() -> None:
            with self.recorder.operation(process, "poll", COMMITTED) as done:
                poll_into(consumer, entries, POLLED_AT_ONCE, POLL_S)
                report(done, entries)

        with closing(consumer, consumer.close):
            yield poll


def report(done: Completion, entries: list[list[Any]]) -> None:
    """The records polled so far belong to this operation. Records that callbacks add from now on belong to the next
    one."""
    done.ok(list(entries))
    entries.clear()


def subscribe(consumer: Consumer, topic: str, entries: list[list[Any]]) -> None:
    """Each assignment is an entry that says that the position is unknown."""

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        entries.extend([name_of(each.topic, each.partition), None] for each in partitions)

    consumer.subscribe([topic], on_assign=assigned)


def start(surroundings: Surroundings) -> list[Client]:
    return [
        ConfluentSender(surroundings, "sender-confluent-1"),
        ConfluentSender(surroundings, "sender-confluent-2"),
        KafkaPythonSender(surroundings, "sender-kafka-python"),
        AssignedReader(surroundings, "reader-confluent", TOPIC, PARTITIONS),
        KafkaPythonReader(surroundings, "reader-kafka-python", TOPIC, PARTITIONS),
        Subscriber(surroundings, "subscriber-1"),
        Subscriber(surroundings, "subscriber-2"),
    ]
