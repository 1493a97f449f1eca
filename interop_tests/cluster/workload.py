"""Clients at work while nodes fail: numbered records, the acknowledged ones, the longest time without progress, and
the check.

A record's value is its partition and number. The producers are idempotent with acks=all, so the check is strict: each
partition contains the numbers of its producer in order, each at most once, and every acknowledged one. A client that
assigned new sequence numbers to its records may have written some twice, and no broker can notice that.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from interop_tests.harness.epochs import Epochs
from interop_tests.harness.kafka_python import close_at_once
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.waiting import wait_until

PACE_S = 0.02
STALL_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
# Timeout for a hanging node. The clients' defaults of 30 s and more would hide how soon the cluster continues.
REQUEST_TIMEOUT_S = 5.0


class Progress:
    """Moments of success by partition, and the longest time between two of them."""

    def __init__(self, partitions: Sequence[int]) -> None:
        now = time.monotonic()
        self._last = dict.fromkeys(partitions, now)
        self._longest = dict.fromkeys(partitions, 0.0)
        self._lock = threading.Lock()

    def note(self, partition: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._longest[partition] = max(self._longest[partition], now - self._last[partition])
            self._last[partition] = now

    def pass_over(self, partition: int) -> None:
        """What has passed since the last success does not count."""
        with self._lock:
            self._last[partition] = time.monotonic()

    def longest_gap_s(self) -> float:
        """The longest gap of any partition, including the time up to now."""
        now = time.monotonic()
        with self._lock:
            return max(max(longest, now - self._last[each]) for each, longest in self._longest.items())

    def last(self) -> float:
        """The partition with the longest current gap, and the time of its last success."""
        with self._lock:
            return min(self._last.values())

    def reset(self) -> None:
        """Forget the gaps so far."""
        now = time.monotonic()
        with self._lock:
            self._last = dict.fromkeys(self._last, now)
            self._longest = dict.fromkeys(self._longest, 0.0)


class Work:
    """A producer that writes to every partition of a topic until it is stopped. Subclasses implement the client."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        self.topic = topic
        self.name = name
        self.progress = Progress(range(partitions))
        self.acknowledged: dict[int, list[int]] = {each: [] for each in range(partitions)}
        self.sent = dict.fromkeys(range(partitions), 0)
        self.failures: list[str] = []
        self.renumbered = False
        """Whether the client took a new producer epoch on the way. Known after it has stopped."""
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> Work:
        self._thread.start()
        self.wait_for_progress(records=1)
        self.progress.reset()
        return self

    def _work(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")

    def wait_for_progress(self, timeout_s: float = STALL_TIMEOUT_S, records: int = 20) -> float:
        """Wait until every partition has this many more acknowledged records. Returns the longest gap so far in
        seconds."""
        wanted = {each: len(done) + records for each, done in self.acknowledged.items()}
        try:
            wait_until(
                lambda: (
                    self.failures
                    or all(len(self.acknowledged[each]) >= count for each, count in wanted.items())
                ),
                f"{self.name} goes on",
                timeout_s,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None
        assert not self.failures, f"{self.failures[:3]}\n{self.describe()}"
        return self.progress.longest_gap_s()

    def knows(self, brokers: Collection[int]) -> bool:
        """Whether its client could ask each of these brokers. librdkafka keeps those it was started with."""
        return True

    def stop(self) -> float:
        """Stop after every sent record is acknowledged. Returns the longest time without progress in seconds."""
        self._ended.set()
        self._thread.join(STALL_TIMEOUT_S + 30)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        assert not self.failures, self.failures[:3]
        return self.progress.longest_gap_s()

    def describe(self) -> str:
        """The client's state, for the message of a failure."""
        counts = {each: (self.sent[each], len(done)) for each, done in self.acknowledged.items()}
        return f"{self.name}: sent and acknowledged by partition: {counts}"

    def _value(self, partition: int) -> bytes:
        self.sent[partition] += 1
        return b"%s:%d:%d" % (self.name.encode(), partition, self.sent[partition])

    def _acknowledge(self, partition: int, number: int) -> None:
        self.acknowledged[partition].append(number)
        self.progress.note(partition)

    def _run(self) -> None:
        raise NotImplementedError


class LastLines(logging.Handler):
    """Keeps the last lines that a client has logged."""

    def __init__(self, level: int = logging.ERROR) -> None:
        super().__init__(level)
        self.texts: deque[str] = deque(maxlen=20)
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


class ConfluentWork(Work):
    """librdkafka's producer. `security`: its settings of TLS and SASL."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        name: str,
        security: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(bootstrap, topic, partitions, name)
        self._security = security
        self.said = LastLines(logging.DEBUG)

    def describe(self) -> str:
        return "\n".join([super().describe(), *self.said.texts])

    def _run(self) -> None:
        epochs = Epochs()
        logger = logging.Logger(self.name)
        logger.addHandler(self.said)
        producer = Producer(
            {
                **epochs.settings(),
                **self._security,
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(STALL_TIMEOUT_S * 1000),
                "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
                "request.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
                "topic.metadata.refresh.interval.ms": 2000,
                "reconnect.backoff.max.ms": 500,
                "debug": "broker,eos",
            },
            logger=logger,
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            partition = message.partition()
            if error is not None:
                self.failures.append(f"{self.name} {partition}: {error}")
                return
            number = int(message.value().rsplit(b":", 1)[1])
            self._acknowledge(partition, number)

        while not self._ended.is_set() and not self.failures:
            for partition in self.acknowledged:
                if self.sent[partition] - len(self.acknowledged[partition]) > 500:
                    continue
                producer.produce(
                    self.topic, self._value(partition), partition=partition, on_delivery=delivered
                )
            producer.poll(PACE_S)
            self._ended.wait(PACE_S)
        if producer.flush(STALL_TIMEOUT_S):
            self.failures.append(f"{self.name} could not send all")
        self.renumbered = epochs.renumbered(producer)


class KafkaPythonWork(Work):
    """kafka-python's producer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(bootstrap, topic, partitions, name)
        self.errors = LastLines()
        self.producer: Any = None

    def knows(self, brokers: Collection[int]) -> bool:
        """Its client asks the brokers of the last metadata and no others. If these are gone, it finds no other one."""
        return self._known_brokers().issuperset(brokers)

    def _known_brokers(self) -> set[int]:
        return {each.node_id for each in self.producer._metadata.brokers()}

    def describe(self) -> str:
        told = [super().describe(), *self.errors.texts]
        if self.producer is not None:
            accumulator, sender = self.producer._accumulator, self.producer._sender
            told.append(f"muted {accumulator.muted}, in flight {dict(sender._in_flight_batches)}")
            for name, queue in dict(accumulator._batches).items():
                told.append(f"{name}: {len(queue)} batches, the first {list(queue)[:2]}")
            told.append(f"sender lives: {sender.is_alive()}, {vars(self.producer._transaction_manager)}")
            metadata = self.producer._metadata
            leaders = {
                each.partition_index: each.leader_id
                for each in metadata._partitions.get(self.topic, {}).values()
            }
            refreshes = [
                each and (each.is_done, each.exception)
                for each in (metadata._refresh_loop_future, metadata._refresh_future)
            ]
            told.append(f"brokers {self._known_brokers()}")
            told.append(f"leaders {leaders}, ttl {metadata.ttl()} ms, loop and last refresh {refreshes}")
            for each in dict(metadata._manager._conns).values():
                waiting = len(each.in_flight_requests), len(each._request_buffer), each.paused
                told.append(f"{each}: in flight, buffered, paused {waiting}")
        return "\n".join(told)

    def _run(self) -> None:
        from kafka import KafkaProducer

        # The tests cause lost connections, so the client's messages are shown only with a failure.
        logger = logging.getLogger("kafka")
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        logger.addHandler(self.errors)
        try:
            self._produce(KafkaProducer)
        finally:
            logger.removeHandler(self.errors)

    def _produce(self, make: Callable[..., Any]) -> None:
        producer = self.producer = make(
            bootstrap_servers=self._bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            delivery_timeout_ms=int(STALL_TIMEOUT_S * 1000),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            metadata_max_age_ms=2000,
            max_block_ms=int(STALL_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=500,
        )

        def failed(error: BaseException) -> None:
            self.failures.append(f"{self.name}: {error!r}")

        def acknowledge(partition: int, number: int) -> Any:
            return lambda _: self._acknowledge(partition, number)

        try:
            while not self._ended.is_set() and not self.failures:
                for partition in self.acknowledged:
                    if self.sent[partition] - len(self.acknowledged[partition]) > 500:
                        continue
                    value = self._value(partition)
                    future = producer.send(self.topic, value, partition=partition)
                    future.add_callback(acknowledge(partition, self.sent[partition]))
                    future.add_errback(failed)
                self._ended.wait(2 * PACE_S)
            producer.flush(STALL_TIMEOUT_S)
        except Exception as error:
            failed(error)
        finally:
            close_at_once(producer)


class Follower:
    """A consumer that reads a topic while it is written, and checks that every partition has no gaps or repeats."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        security: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._security = security
        self.seen: dict[tuple[str, int], int] = {}
        self.faults: list[str] = []
        self.repeats: dict[str, list[str]] = {}
        """The repeated records of each producer, in their order."""
        self.progress = Progress(range(partitions))
        self._topic = topic
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> Follower:
        self._thread.start()
        return self

    def wait_for(self, work: Work, timeout_s: float = READ_TIMEOUT_S) -> None:
        """Wait until it has read the last record of the work, which must have ended."""
        wanted = {(work.name, each): count for each, count in work.sent.items()}
        wait_until(
            lambda: self.faults or all(self.seen.get(key, 0) >= count for key, count in wanted.items()),
            "the consumer has read everything",
            timeout_s,
        )
        assert not self.faults, self.faults[:3]
        assert work.renumbered or not self.repeats.get(work.name), self.repeats[work.name][:3]

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(STALL_TIMEOUT_S)
        assert not self._thread.is_alive(), "the consumer hangs"

    def _run(self) -> None:
        with closing_consumer(self._bootstrap, **self._security) as consumer:
            consumer.assign([TopicPartition(self._topic, each, 0) for each in range(self._partitions)])
            while not self._ended.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        self._take(message)

    def _take(self, message: Message) -> None:
        name, partition, number = parse(message.value())
        before = self.seen.get((name, partition), 0)
        if number > before + 1 or partition != message.partition():
            self.faults.append(f"{name} {partition}: {number} came after {before}")
        elif number <= before:
            self.repeats.setdefault(name, []).append(f"{partition}: {number} came after {before}")
        self.seen[name, partition] = number
        self.progress.note(message.partition())


def parse(value: bytes) -> tuple[str, int, int]:
    """(name of the producer, partition, number)."""
    name, partition, number = value.decode().rsplit(":", 2)
    return name, int(partition), int(number)


@contextlib.contextmanager
def closing_consumer(bootstrap: str, **settings: Any) -> Any:
    """A librdkafka consumer without commits that reads from the earliest record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **CONNECTED_TO_ALL,
            "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
            "log_level": 0,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_back(bootstrap: str, topic: str, partitions: int, **settings: Any) -> dict[int, list[bytes]]:
    """Every value of each partition up to its high watermark, in order."""
    found: dict[int, list[bytes]] = {each: [] for each in range(partitions)}
    with closing_consumer(bootstrap, **settings) as consumer:
        for partition in range(partitions):
            low, high = _watermarks(consumer, TopicPartition(topic, partition))
            consumer.assign([TopicPartition(topic, partition, low)])
            deadline = time.monotonic() + READ_TIMEOUT_S
            offset = low
            while offset < high:
                assert time.monotonic() < deadline, f"{topic}-{partition} stops at {offset} of {high}"
                for message in consumer.consume(2000, 0.2):
                    if message.error() is None:
                        found[partition].append(message.value())
                        offset = message.offset() + 1
    return found


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=5, cached=False)
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def assert_exact(bootstrap: str, topic: str, *works: Work, **settings: Any) -> None:
    """Read the topic back and check for each partition and producer: in order, no acknowledged record lost, no record
    twice. `settings`: of the consumer.

    If a client assigned new sequence numbers, a repeated record counts at its first place, where it was in order.
    """
    partitions = len(works[0].acknowledged)
    numbers: dict[tuple[str, int], list[int]] = {}
    for partition, values in read_back(bootstrap, topic, partitions, **settings).items():
        for value in values:
            name, of_partition, number = parse(value)
            assert of_partition == partition, value
            numbers.setdefault((name, partition), []).append(number)
    for work in works:
        for partition, acknowledged in work.acknowledged.items():
            found = numbers.get((work.name, partition), [])
            where = f"{work.name} in {topic}-{partition}"
            lost = sorted(set(acknowledged) - set(found))
            assert not lost, f"{where}: {len(lost)} acknowledged records are lost, first {lost[:5]}"
            if work.renumbered:
                found = list(dict.fromkeys(found))
            twice = len(found) - len(set(found))
            assert not twice, f"{where}: {twice} records came twice"
            disordered = [pair for pair in itertools.pairwise(found) if pair[0] > pair[1]]
            assert not disordered, f"{where}: out of order at {disordered[:5]}"
            assert acknowledged == sorted(acknowledged), f"{where}: acknowledged out of order"
