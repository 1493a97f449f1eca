"""Clients that do as much as they may: stock producers and consumers, under a quota of their client id.

Each tells how many bytes of values it has moved, and the longest throttle time that the broker has told it. `kind` is the
quota that it meets: produce, fetch, or request (percentage), for which a producer sends one record at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError

from interop_tests.consumer_groups.members import java_program
from interop_tests.harness.json_process import JsonProcess
from interop_tests.harness.kafka_python import close_at_once

JAVA_PROGRAM = Path(__file__).resolve().parent / "java" / "LimitedClient.java"
PRODUCE, FETCH, REQUEST = "produce", "fetch", "request"
LIBRDKAFKA, KAFKA_PYTHON, JAVA = "librdkafka", "kafka-python", "Java"
FETCH_BYTES = 65_536
WARNINGS = 4
END_TIMEOUT_S = 60.0


class Seen(NamedTuple):
    moved: int
    throttle_ms: float


class Client(Protocol):
    def seen(self) -> Seen: ...

    def close(self) -> None: ...


class Working:
    """A client in a thread."""

    def __init__(self) -> None:
        self.moved = 0
        self.failure: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self) -> None:
        """Go on until the end is wanted."""
        raise NotImplementedError

    def throttle_ms(self) -> float:
        raise NotImplementedError

    def seen(self) -> Seen:
        assert self.failure is None, repr(self.failure)
        return Seen(self.moved, self.throttle_ms())

    def close(self) -> None:
        self._ended.set()
        self._thread.join(END_TIMEOUT_S)


class OfLibrdkafka(Working):
    def __init__(self, bootstrap: str, client_id: str, topic: str, kind: str, size: int) -> None:
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "log_level": WARNINGS,
            "enable.metrics.push": False,
            "throttle_cb": self._throttled,
        }
        self._topic, self._kind, self._size = topic, kind, size
        self._longest_ms = 0.0
        super().__init__()

    def _throttled(self, event: Any) -> None:
        self._longest_ms = max(self._longest_ms, event.throttle_time * 1000)

    def throttle_ms(self) -> float:
        return self._longest_ms

    def work(self) -> None:
        if self._kind == FETCH:
            self._consume()
        else:
            self._produce()

    def _produce(self) -> None:
        options = {"queue.buffering.max.messages": 1000, "batch.size": 16_384, "linger.ms": 5}
        if self._kind == REQUEST:
            options = {"linger.ms": 0}
        producer = Producer(self._options | options)
        value = bytes(self._size)

        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.moved += self._size

        while not self._ended.is_set():
            try:
                producer.produce(self._topic, value, partition=0, on_delivery=told)
            except BufferError:
                producer.poll(0.1)
                continue
            if self._kind == REQUEST:
                producer.flush(END_TIMEOUT_S)
            else:
                producer.poll(0)
        producer.purge()

    def _consume(self) -> None:
        options = {"group.id": "none", "fetch.message.max.bytes": FETCH_BYTES, "enable.auto.commit": False}
        consumer = Consumer(self._options | options)
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._ended.is_set():
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                self.moved += len(message.value() or b"")
        consumer.close()


class OfKafkaPython(Working):
    def __init__(self, bootstrap: str, client_id: str, topic: str, kind: str, size: int) -> None:
        self._topic, self._kind, self._size = topic, kind, size
        common: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": client_id}
        self._client: Any
        if kind == FETCH:
            self._client = KafkaConsumer(**common, max_partition_fetch_bytes=FETCH_BYTES)
        else:
            self._client = KafkaProducer(**common)
        super().__init__()

    def throttle_ms(self) -> float:
        values = [
            value
            for group in self._client.metrics().values()
            for name, value in group.items()
            if name.endswith("throttle-time-max")
        ]
        return max(
            [float(value) for value in values if value == value and value != float("-inf")], default=0.0
        )

    def work(self) -> None:
        if self._kind == FETCH:
            self._consume()
        else:
            self._produce()

    def _produce(self) -> None:
        value = bytes(self._size)

        def delivered(_: object) -> None:
            self.moved += self._size

        while not self._ended.is_set():
            with suppress(KafkaTimeoutError):
                sent = self._client.send(self._topic, value, partition=0).add_callback(delivered)
                if self._kind == REQUEST:
                    sent.get(END_TIMEOUT_S)
        close_at_once(self._client)

    def _consume(self) -> None:
        partition = KafkaPythonPartition(self._topic, 0)
        self._client.assign([partition])
        self._client.seek_to_beginning(partition)
        while not self._ended.is_set():
            for records in self._client.poll(100).values():
                self.moved += sum(len(each.value) for each in records)
        self._client.close()


class OfJava:
    def __init__(self, bootstrap: str, client_id: str, topic: str, kind: str, size: int, log: Path) -> None:
        settings = {
            "bootstrap": bootstrap,
            "client": client_id,
            "topic": topic,
            "kind": kind,
            "size": str(size),
        }
        self._process = JsonProcess(java_program("limited_client", JAVA_PROGRAM), log, settings)

    def seen(self) -> Seen:
        answer = self._process.ask("state")
        return Seen(answer["moved"], answer["throttle_ms"])

    def close(self) -> None:
        self._process.kill()


def started(name: str, bootstrap: str, client_id: str, topic: str, kind: str, size: int, log: Path) -> Client:
    if name == JAVA:
        return OfJava(bootstrap, client_id, topic, kind, size, log)
    made: Callable[..., Client] = OfLibrdkafka if name == LIBRDKAFKA else OfKafkaPython
    return made(bootstrap, client_id, topic, kind, size)
